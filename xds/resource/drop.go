// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/xdslb/xdslb/picker"
)

// drops reads the drop_overloads of a policy (A27-CLA-13).
func (d *endpointsDecoder) drops(policy []byte) (drops []picker.Drop, ok bool) {
	r := reader{rest: policy}
	for r.next() {
		if r.tag != tagDropOverloads {
			continue
		}
		f, ok := parseDrop(r.bytes)
		if !ok {
			return nil, false
		}
		percent, ok := fraction(f.numerator, f.denominator) // T-DROP-1
		if !ok {
			p := d.root().dot("policy").dot("drop_overloads").at(len(drops)).dot("drop_percentage")
			p.dot("denominator").refuse(int32(f.denominator), knownDenominator)
		}
		drops = append(drops, picker.Drop{Category: f.category, PerMillion: percent.PerMillion})
	}
	return drops, !r.bad
}

// dropFields is a DropOverload.
type dropFields struct {
	category    string
	numerator   uint32
	denominator typev3.FractionalPercent_DenominatorType
}

func parseDrop(b []byte) (f dropFields, ok bool) {
	var percent []byte
	ok = true
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case tagCategory:
			ok = setText(&f.category, r.bytes) && ok
		case tagDropPercentage:
			percent = merge(percent, r.bytes)
		}
	}
	ok = ok && !r.bad
	r = reader{rest: percent}
	for r.next() {
		switch r.tag {
		case tagNumerator:
			f.numerator = uint32(r.varint)
		case tagDenominator:
			f.denominator = typev3.FractionalPercent_DenominatorType(r.varint)
		}
	}
	return f, ok && !r.bad
}

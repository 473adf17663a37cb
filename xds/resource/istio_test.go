// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestIstioAccepted decodes every resource that Istio was observed to send to proxyless clients
// (testdata/istio/README.md describes how they were recorded): all are accepted, with a
// bootstrap that defines the certificate provider that they name.
func TestIstioAccepted(t *testing.T) {
	opts := Options{CertProvider: onlyDefault}
	n := 0
	for typ, file := range []string{"every.lds.jsonl", "every.rds.jsonl", "every.cds.jsonl", "every.eds.jsonl"} {
		text, err := os.ReadFile("testdata/istio/" + file)
		kit.Must(t, err)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		n += len(lines)
		for i, line := range lines {
			b := fromJSON(t, Type(typ), line)
			if _, err := Decode(Type(typ), b, opts); err != nil {
				t.Errorf("%s:%d: %v", file, i+1, err)
			}
			if Type(typ) != EndpointsType {
				continue
			}
			if _, err := decodeEndpoints(b, Options{}, stopper{}); err != nil {
				t.Errorf("%s:%d: %v", file, i+1, err)
			}
		}
	}
	if n != 37 {
		t.Errorf("%d resources, want 37", n)
	}
}

// TestDecodedKeepsNothing checks that decoded resources do not refer to their bytes, which may
// be a small part of a large response.
func TestDecodedKeepsNothing(t *testing.T) {
	opts := Options{CertProvider: onlyDefault}
	for typ, file := range []string{"every.lds.jsonl", "every.rds.jsonl", "every.cds.jsonl", "every.eds.jsonl"} {
		text, err := os.ReadFile("testdata/istio/" + file)
		kit.Must(t, err)
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			b := fromJSON(t, Type(typ), line)
			want, err := Decode(Type(typ), bytes.Clone(b), opts)
			kit.Must(t, err)
			got, err := Decode(Type(typ), b, opts)
			kit.Must(t, err)
			for i := range b {
				b[i] = 'x'
			}
			if !reflect.DeepEqual(plainValue(got), plainValue(want)) {
				t.Errorf("%s:%d: %+v\nwant %+v", file, i+1, got, want)
			}
		}
	}
}

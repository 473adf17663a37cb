// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/xdslb/xdslb/xds/resource"
)

// splitResponse contains the resources of a response: in slots, by position, the resources that are
// unchanged since the latest response, and in items all other resources.
type splitResponse struct {
	typ     resource.Type
	stopped func() bool // reports whether the response is irrelevant
	wants   func(name string) bool

	version string // of the whole response
	items   []resourceUpdate
	// unwanted are the names of resources that are not subscribed to, of which a response may have many.
	unwanted []string
	partial  bool   // not all resources are named, though the type's responses are complete
	faults   faults // any makes the answer a NACK (A46)
	seen     map[string]struct{}

	// latest has the slots of the latest response of the type, and slots the slots of this response; nil
	// if responses are not compared by position. A slot of this response has a subscription if the
	// resource is unchanged. next is the index of the first candidate in latest.
	latest, slots []slot
	next          int
}

// resourceUpdate is a resource of a response.
type resourceUpdate struct {
	name    string   // canonical
	at      int      // its slot
	alias   string   // canonical own name of the resource, if name is an alias
	aliases []string // other names of the resource
	version string
	bytes   []byte
	sum     xxh3.Uint128
	ttl     time.Duration // 0 is unlimited
	// heartbeat means that there is no content: the version in the cache is renewed.
	heartbeat bool

	cached bool // value and err are from the cache
	prev   any  // the version in the cache, if there is one
	value  any
	raw    []byte // a copy of bytes, if the client keeps them; from the cache if cached is set
	err    error
}

// interrupted reports whether to stop at resource number i since the response is irrelevant.
func (p *splitResponse) interrupted(i int) bool { return i%1024 == 0 && p.stopped() }

// add adds resource number i of a response, unless its name has been seen.
func (p *splitResponse) add(i int, it resourceUpdate) {
	if p.recordName(i, it.name) && !p.passOver(&it) {
		it.sum = xxh3.Hash128(it.bytes)
		p.items = append(p.items, it)
	}
}

// passOver records the name of a resource that is not subscribed to, and reports whether it is not needed.
func (p *splitResponse) passOver(it *resourceUpdate) bool {
	if len(it.aliases) > 0 || p.wants(it.name) {
		return false
	}
	p.unwanted = append(p.unwanted, it.name)
	return true
}

// recordName records the name of resource number i, and reports whether it is the first one with that
// name.
func (p *splitResponse) recordName(i int, name string) bool {
	if _, twice := p.seen[name]; twice {
		p.faults.add(fmt.Errorf("resources[%d]: there is a second %v resource %q in the response", i, p.typ, name))
		return false
	}
	p.seen[name] = struct{}{}
	return true
}

// refuse records that resource number i cannot be read.
func (p *splitResponse) refuse(i int, err error) {
	p.partial = true
	p.faults.add(fmt.Errorf("resources[%d]: %w", i, err))
}

// typeMismatch returns the error for a resource of another type than its response.
func typeMismatch(typ resource.Type, url string) error {
	return fmt.Errorf("a resource of type %q in a response of type %q", url, typ.URL())
}

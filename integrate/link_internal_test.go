// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"testing"

	"google.golang.org/grpc"
)

// TestLinkLeavesNothing: whichever of bind and close comes first, a link that
// ended cannot be found, and pins no channel.
func TestLinkLeavesNothing(t *testing.T) {
	for _, bindFirst := range []bool{true, false} {
		l, cc := newLink(func() {}, true), new(grpc.ClientConn)
		if bindFirst {
			l.bind(cc)
			if got, ok := linksOf.Load(cc); !ok || got != l {
				t.Errorf("a bound channel has link %v", got)
			}
			l.close()
		} else {
			l.close()
			l.bind(cc)
		}
		if _, ok := links.Load(l.id); ok {
			t.Errorf("bind first %v: the link can be found by its id", bindFirst)
		}
		if _, ok := linksOf.Load(cc); ok {
			t.Errorf("bind first %v: the link can be found by its channel", bindFirst)
		}
		if b := settled.Load(); b != nil {
			t.Errorf("bind first %v: the link is still %v's", bindFirst, b.cc)
		}
		<-l.known // nobody waits for it
	}
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// TestLinkLeavesNothing: whichever of bind and close comes first, a link that
// ended cannot be found, and pins no channel.
func TestLinkLeavesNothing(t *testing.T) {
	for _, bindFirst := range []bool{true, false} {
		l, cc := New(Options{}), new(grpc.ClientConn)
		if bindFirst {
			l.Bind(cc, 5)
			if got := channels.find(cc); got != l {
				t.Errorf("a bound channel has link %v", got)
			}
			l.Close()
		} else {
			l.Close()
			l.Bind(cc, 5)
		}
		if slices.Contains(All(), l) {
			t.Errorf("bind first %v: the link is still registered", bindFirst)
		}
		if channels.find(cc) != nil || channels.bound != 0 {
			t.Errorf("bind first %v: the link can be found by its channel", bindFirst)
		}
	}
}

// TestLinkIsReadable: channelz shows the entry of a link under a name of this package, with a
// readable timeout that differs between links.
func TestLinkIsReadable(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		l := New(Options{})
		defer l.Close()
		m := l.MethodConfig()
		timeout, err := time.ParseDuration(m.Timeout)
		if err != nil || timeout != l.id || timeout > time.Hour || seen[m.Timeout] {
			t.Errorf("timeout %q: %v; want less than an hour, and another one for each link", m.Timeout, err)
		}
		seen[m.Timeout] = true
		if name := m.Name[0]["service"] + "/" + m.Name[0]["method"]; name != "xdslb.internal.Channel/Number" {
			t.Errorf("the entry is named %s", name)
		}
	}
}

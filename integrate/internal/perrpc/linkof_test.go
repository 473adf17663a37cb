// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestLinkOfOthers: to ask for the link of a channel that cannot have one changes no
// service config: whoever looks at all channels of a program may look at many.
func TestLinkOfOthers(t *testing.T) {
	updates := 0
	l := NewLink(LinkOptions{Update: func() { updates++ }})
	l.Register()
	defer l.Close()
	for _, target := range []string{"passthrough:///x", "dns:///localhost"} {
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if got := LinkOf(cc); got != nil || updates != 0 {
			t.Errorf("%s: LinkOf() = %v, with %d updates of another channel's service config", target, got, updates)
		}
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestArrows keeps imports pointing down: integrate to its internal packages, these to xds and
// picker, xds to picker, picker to the leaves, and these to the standard library and the hash
// libraries.
func TestArrows(t *testing.T) {
	const (
		mod    = "github.com/xdslb/xdslb/"
		kernel = "the kernel is usable without gRPC, and small"
		cold   = "the cold path knows nothing of channels and picks"
		prod   = "nothing in production imports measurements or tests"
	)
	type rule struct{ prefix, why string }
	const internal = mod + "integrate/internal/"
	// below are rules of packages that the balancer uses.
	below := func(more ...rule) []rule {
		return append(more, rule{internal + "balancer", "the balancer is above"})
	}
	server := []rule{{mod, "servers link it without a client"}, {"github.com/", "servers link it without a client"}}
	host := []rule{
		{"google.golang.org/grpc", kernel},
		{"google.golang.org/protobuf", kernel},
		{"github.com/envoyproxy/", kernel},
		{mod + "xds", kernel},
		{mod + "integrate", kernel},
	}
	tests := []struct {
		pkg string
		bad []rule
		may string // a dependency to which bad does not apply
	}{
		{"edf", append(host, rule{mod + "picker", "edf is a leaf"}, rule{mod + "ringhash", "edf is a leaf"}, rule{"github.com/", "edf needs the standard library only"}), ""},
		{"ringhash", append(host, rule{mod + "picker", "ringhash is a leaf"}, rule{mod + "edf", "ringhash is a leaf"}), ""},
		{"picker", host, ""},
		{"xds/resource", []rule{{mod + "integrate", cold}, {mod + "bench", prod}, {"google.golang.org/grpc/xds", "we replace it"}}, ""},
		{"xds", []rule{{mod + "integrate", cold}, {mod + "bench", prod}, {mod + "xds/xdstest", prod}, {"github.com/envoyproxy/go-control-plane/pkg", prod}}, ""},
		{"integrate", []rule{
			{mod + "bench", prod}, {mod + "fuzz", prod}, {mod + "xds/xdstest", prod},
			{"github.com/envoyproxy/go-control-plane/pkg", prod},
			{"google.golang.org/grpc/internal/xds/resolver", "we replace it, and users must not link it twice"},
		}, ""},
		{"integrate/internal/serial", []rule{{"github.com/", "it knows nothing of what it runs"}, {"google.golang.org/", "it knows nothing of what it runs"}}, ""},
		{"integrate/internal/balancer", []rule{{internal + "rollout", "the resolver decides whose a channel is"}, {internal + "offline", "it is for package integrate"}}, ""},
		{"integrate/internal/explain", below(rule{internal + "counters", "it reads configurations and snapshots only"}), ""},
		{"integrate/internal/channelmetrics", below(rule{internal + "explain", "texts are not metrics"}), ""},
		{"integrate/internal/counters", below(rule{internal + "rpc", "it counts picks"}, rule{internal + "metric", "package channelmetrics reads the counters"}), ""},
		{"integrate/internal/rpc", below(rule{internal + "explain", "it explains what it does in its own types"}, rule{internal + "channelmetrics", "that reads links"}), ""},
		{"integrate/internal/compare", below(rule{internal + "rpc", "it reads configurations only"}), ""},
		{"integrate/internal/rollout", below(rule{internal + "explain", "it decides by the environment only"}), ""},
		{"integrate/report", []rule{{internal, "it is plain data"}, {mod + "picker", "it is plain data"}, {"google.golang.org/grpc", "it is plain data"}}, ""},
		{"integrate/probe", server, internal + "proberpc"},
		{"integrate/internal/proberpc", server, ""},
		{"integrate/stockmetrics", []rule{{"google.golang.org/grpc/internal/xds/xdsclient", "it is for programs without stock"}}, ""},
	}
	for _, tt := range tests {
		out, err := exec.Command("go", "list", "-deps", "../"+tt.pkg).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", tt.pkg, err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			if dep == mod+tt.pkg || dep == tt.may {
				continue
			}
			for _, r := range tt.bad {
				if strings.HasPrefix(dep, r.prefix) {
					t.Errorf("%s depends on %s: %s", tt.pkg, dep, r.why)
				}
			}
		}
	}
}

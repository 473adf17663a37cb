// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestArrows keeps the house's import arrows pointing down: integrate to xds
// and picker, xds to picker, picker to the leaves, leaves to the standard
// library and the hash libraries.
func TestArrows(t *testing.T) {
	const (
		mod    = "github.com/xdslb/xdslb/"
		kernel = "the kernel is usable without gRPC, and small"
		cold   = "the cold path knows nothing of channels and picks"
		prod   = "nothing in production imports measurements or tests"
	)
	type rule struct{ prefix, why string }
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
	}{
		{"edf", append(host, rule{mod + "picker", "edf is a leaf"}, rule{mod + "ringhash", "edf is a leaf"}, rule{"github.com/", "edf needs the standard library only"})},
		{"ringhash", append(host, rule{mod + "picker", "ringhash is a leaf"}, rule{mod + "edf", "ringhash is a leaf"})},
		{"picker", host},
		{"xds/resource", []rule{{mod + "integrate", cold}, {mod + "bench", prod}, {"google.golang.org/grpc/xds", "we replace it"}}},
		{"xds", []rule{{mod + "integrate", cold}, {mod + "bench", prod}, {mod + "xds/xdstest", prod}, {"github.com/envoyproxy/go-control-plane/pkg", prod}}},
		{"integrate", []rule{
			{mod + "bench", prod}, {mod + "fuzz", prod}, {mod + "xds/xdstest", prod},
			{"github.com/envoyproxy/go-control-plane/pkg", prod},
			{"google.golang.org/grpc/internal/xds/resolver", "we replace it, and users must not link it twice"},
		}},
		{"integrate/internal/serial", []rule{{"github.com/", "it knows nothing of what it runs"}, {"google.golang.org/", "it knows nothing of what it runs"}}},
		{"integrate/probe", []rule{
			{mod, "servers link it without a client"}, {"github.com/", "servers link it without a client"},
		}},
		{"integrate/stockmetrics", []rule{{"google.golang.org/grpc/internal/xds/xdsclient", "it is for programs without stock"}}},
	}
	for _, tt := range tests {
		out, err := exec.Command("go", "list", "-deps", "../"+tt.pkg).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", tt.pkg, err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			if dep == mod+tt.pkg {
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

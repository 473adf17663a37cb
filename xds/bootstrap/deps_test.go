// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies checks that the dependencies excluded by the package comment are not linked.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	for prefix, why := range map[string]string{
		"google.golang.org/grpc/internal/xds":     "two xDS clients in one program",
		"google.golang.org/grpc/xds":              "its registry of credentials links ALTS, OAuth and SPIFFE; see package comment",
		"google.golang.org/grpc/credentials/alts": "is needed on Google's platform only",
		"golang.org/x/oauth2":                     "is needed on Google's platform only",
		"github.com/spiffe":                       "a SPIFFE bundle map (A87) is a little JSON",
		"github.com/xdslb/xdslb/integrate":        "arrows point down",
		"github.com/xdslb/xdslb/picker":           "this package knows nothing about load balancing",
	} {
		for dep := range strings.Lines(string(out)) {
			if dep = strings.TrimSpace(dep); dep == prefix || strings.HasPrefix(dep, prefix+"/") {
				t.Errorf("%s is imported: %s", dep, why)
			}
		}
	}
}

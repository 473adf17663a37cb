// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestNew: check accepts the files of new, with every combination of its flags. Existing files are kept. check reports
// a resource file that is invalid.
func TestNew(t *testing.T) {
	flags := []string{"-outliers", "-retries"}
	for i, policy := range []string{"least_latency", "least_request", "round_robin"} {
		for n := range len(flags) + 1 {
			dir := t.TempDir()
			args := append([]string{"new", "-dns", "orders.shop.svc:8080", "-dir", dir, "-policy", policy}, flags[:n]...)
			wantCall(t, exitOK, args, filepath.Join(dir, "bootstrap.json"), "xds:///orders.shop.svc:8080")
			file, resources := filepath.Join(dir, "bootstrap.json"), filepath.Join(dir, "resources.json")
			wantCall(t, exitOK, []string{"check", "-b", file, "xds:///orders.shop.svc:8080"}, "clusters: 1", "a resource file", "STRICT_DNS is unsupported")
			wantCall(t, exitFinding, args, "file exists")
			wantCall(t, exitOK, []string{"check", "-f", resources, "orders.shop.svc:8080"}, "clusters: 1")
			if i+n > 0 {
				continue
			}
			kit.Must(t, os.WriteFile(resources, []byte(`{"cds": [`), 0o600))
			wantCall(t, exitFinding, []string{"check", "-b", file}, "unexpected EOF")
		}
	}
	for want, args := range map[string][]string{
		"missing flag: -dns":         {},
		"want HOST:PORT":             {"-dns", "a b:1"},
		"missing port":               {"-dns", "orders"},
		"want least_latency":         {"-dns", "orders:1", "-policy", "fastest"},
		`unexpected argument: "all"`: {"-dns", "orders:1", "all"},
	} {
		wantCall(t, exitUsage, append([]string{"new", "-dir", t.TempDir()}, args...), want)
	}
}

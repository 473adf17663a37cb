// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package size

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkBinary reports the size of stripped programs, in bytes.
func BenchmarkBinary(b *testing.B) {
	for _, tags := range []string{"none", "grpcnotrace"} {
		for _, impl := range []string{"round_robin", "stock", "ours"} {
			b.Run("impl="+impl+"/tags="+tags, func(b *testing.B) {
				if testing.Short() && tags != "none" {
					b.Skip("compiles gRPC and xDS")
				}
				b.ReportMetric(float64(build(b, impl, tags)), "B/binary")
				b.ReportMetric(0, "ns/op") // the time of the linker is irrelevant
			})
		}
	}
}

// build builds a program, and returns how large it is.
func build(b *testing.B, impl, tags string) int64 {
	b.Helper()
	file := filepath.Join(b.TempDir(), impl)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-tags", tags, "-o", file, "./"+impl)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestDemo runs the scenario in this process; under -race it is the race and
// leak test of the whole path.
func TestDemo(t *testing.T) {
	defer goleak.VerifyNone(t)
	if err := Run(t.Context(), Options{Out: testWriter{t}, Measure: time.Second}); err != nil {
		t.Fatal(err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package leak provides [go.uber.org/goleak] with a longer timeout: goleak waits less than half
// a second for goroutines to end, which is too short if a processor is stalled.
package leak

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// patience is the number of times that goleak retries before it reports a leak: half a minute.
const patience = 70

// VerifyTestMain runs tests, and fails if goroutines outlive them, like goleak's function.
func VerifyTestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := find(patience); err != nil {
			fmt.Fprintf(os.Stderr, "leak: the tests have passed, but %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Check fails a test if goroutines outlive it and its cleanup functions. It must be called
// first.
func Check(t testing.TB) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := find(patience, ignore); err != nil {
			t.Error(err)
		}
	})
}

func find(patience int, opts ...goleak.Option) (err error) {
	for range patience {
		if err = goleak.Find(opts...); err == nil {
			return nil
		}
	}
	return err
}

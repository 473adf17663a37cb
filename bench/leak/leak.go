// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package leak is [go.uber.org/goleak] with more patience: that waits for less than half a
// second until goroutines have ended, which one whose processor stands still may take.
package leak

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// patience is how often goleak looks, and waits, in vain until there is a leak: half a
// minute.
const patience = 70

// VerifyTestMain is goleak's: it runs tests, and fails if goroutines outlive them.
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

// Check fails a test, when all that it has to clean up is, if goroutines outlive it. It is
// called first.
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

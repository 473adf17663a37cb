// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for size, ok := range map[int]bool{0: true, 1 << 20: true, 1<<20 + 1: false} {
		kit.Must(t, os.WriteFile(name, bytes.Repeat([]byte("x"), size), 0o600))
		data, err := Read(name, 1<<20)
		if ok && (err != nil || len(data) != size || data == nil) {
			t.Errorf("%d bytes: got %d, %v", size, len(data), err)
		}
		if !ok && (err == nil || !strings.Contains(err.Error(), name+" is larger than 1 MiB")) {
			t.Errorf("%d bytes: error %v", size, err)
		}
	}
}

// TestReaderDoesNotWait checks that callers do not wait for a read that hangs, that they start no
// further one meanwhile, and that the next read after its end is another one.
func TestReaderDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Reader
		var reads atomic.Int32
		invalid := errors.New("invalid")
		hang := make(chan struct{})
		read := func() error {
			reads.Add(1)
			<-hang
			return invalid
		}
		start := time.Now()
		for i := 1; i <= 3; i++ {
			ctx, cancel := Soon(t.Context())
			defer cancel()
			if err := r.Read(ctx, read); !errors.Is(err, errSlow) || time.Since(start) != time.Duration(i)*2*time.Second {
				t.Errorf("after %v: error %v, want %v", time.Since(start), err, errSlow)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Read(ctx, read); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the deadline of the caller", err)
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads at the same time, want 1", n)
		}
		time.AfterFunc(time.Minute, func() { close(hang) })
		if err := r.Read(t.Context(), read); err != invalid || reads.Load() != 1 {
			t.Errorf("error %v of read %d, want that of the first", err, reads.Load())
		}
		if err := r.Read(t.Context(), func() error { return nil }); err != nil {
			t.Errorf("another read returned %v", err)
		}
	})
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package overlay

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHangingFile checks that a file that cannot be read, such as a FIFO or one on a hung mount, is an
// error for the channels that use it, and does not delay others.
func TestHangingFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Skip(err)
	}
	defer func() { // end the read
		if w, err := syscall.Open(file, syscall.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = syscall.Close(w)
		}
	}()
	open := func(document, file string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := Open("document", []byte(document), file, nil)
			done <- err
		}()
		return done
	}
	deadline := time.After(time.Minute)
	hanging := open("", file)
	select {
	case err := <-open(onePatch, ""):
		if err != nil {
			t.Error(err)
		}
	case err := <-hanging:
		t.Errorf("another overlay had to wait for the file: %v", err)
	case <-deadline:
		t.Fatal("another overlay waits for the file")
	}
	select {
	case err := <-hanging:
		if err == nil || !strings.Contains(err.Error(), "file "+file+": cannot be read: not finished within two seconds") {
			t.Errorf("error %v", err)
		}
	case <-deadline:
		t.Fatal("Open waits for the file")
	}
}

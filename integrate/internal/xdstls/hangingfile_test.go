// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package xdstls

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/internal/xdstls/tlstest"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// TestHangingFile checks that if reading a file hangs, as with a FIFO or a hung mount,
// handshakes end at their deadline, or use the previous contents.
func TestHangingFile(t *testing.T) {
	ca := tlstest.NewCA(t, "ca")
	files := tlstest.NewFiles(t)
	fifo := func() {
		if err := syscall.Mkfifo(files.CA, 0o600); err != nil {
			t.Skip(err)
		}
	}
	release := func() { // the read
		w, err := os.OpenFile(files.CA, os.O_WRONLY, 0)
		kit.Must(t, err)
		_ = w.Close()
	}
	providers := map[string]bootstrap.CertProvider{"files": {Plugin: "file_watcher", Files: bootstrap.NewCertLoader(bootstrap.CertFiles{CACertificateFile: files.CA, RefreshInterval: 1})}}
	providers["files"].Files.LogTo(slog.New(slog.DiscardHandler))
	c := NewCluster("c", providers, true)
	defer c.Close()
	c.Update(&picker.TLS{Roots: picker.CertInstance{Instance: "files"}})
	fifo()
	_, err := connectWithin(t, 300*time.Millisecond, c, "", func(net.Conn) {})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), files.CA) {
		t.Errorf("a file that was never read: %v", err)
	}
	release()
	tlstest.Write(t, files.CA, ca.PEM)
	server := serving(certified(ca, tlstest.Names{}))
	if _, err := connect(t, c, "", server); err != nil {
		t.Errorf("a file that is readable again: %v", err)
	}
	kit.Must(t, os.Remove(files.CA))
	fifo()
	if _, err := connect(t, c, "", server); err != nil {
		t.Errorf("a file that was read before: %v", err)
	}
	release()
}

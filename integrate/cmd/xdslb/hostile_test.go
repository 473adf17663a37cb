// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/bench/kit"
)

// full is a disk that is full after a while.
type full int

func (f *full) Write(p []byte) (int, error) {
	if *f -= full(len(p)); *f < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

// TestDiskFull: results that cannot be written completely are reported as an error, in text and in
// JSON.
func TestDiskFull(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"diff", "-target=shop", file, file}, {"pick", "shop", "-f", file}, {"explain", "shop", "/a/b", "-f", file, "-o", "json"}} {
		var said bytes.Buffer
		room := full(10)
		e := &env{ctx: t.Context(), stdout: &room, stderr: &said, now: time.Now}
		if code := e.run(args); code != exitFinding || !strings.Contains(said.String(), "incomplete results: no space left") {
			t.Errorf("xdslb %v: exit code %d, %q", args, code, said.String())
		}
	}
}

// TestHostileErrors: a server's error text reaches a terminal without control sequences, by every
// command and protocol.
func TestHostileErrors(t *testing.T) {
	const evil = "away \x1b[2J\x1b]0;owned\x07 \u202e\r\u009b31m"
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.PermissionDenied, evil)
	}))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": evil})
	}))
	defer page.Close()
	boot := filepath.Join(t.TempDir(), "bootstrap.json")
	text := fmt.Sprintf(`{"node": {"id": "n"}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]}`, lis.Addr())
	kit.Must(t, os.WriteFile(boot, []byte(text), 0o600))
	for _, args := range [][]string{
		{"check", "-timeout", "1m", "-b", boot},
		{"dump", "orders", "-b", boot, "-timeout", "1m"},
		{"explain", "orders", "/a/b", "-b", boot, "-timeout", "1m"},
		{"pick", "orders", "-b", boot, "-timeout", "1m"},
		{"attach", lis.Addr().String(), "-csds", "-once"},
		{"attach", page.URL, "-once"},
		{"attach", page.URL, "-count", "1"},
		{"explain", "orders", "/a/b", "-at", page.URL},
	} {
		s := call(t, args...)
		if all := s.out + s.errors; strings.ContainsAny(all, "\x1b\x07\u202e\r\u009b") {
			t.Errorf("xdslb %v prints %q", args, all)
		} else if !strings.Contains(all, "away") {
			t.Errorf("xdslb %v does not report the error: %q", args, all)
		}
	}
}

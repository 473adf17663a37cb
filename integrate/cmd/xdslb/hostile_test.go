// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestHostileErrors: what a server says is wrong does not reach a terminal as commands to it,
// whichever command asked, and by whichever protocol.
func TestHostileErrors(t *testing.T) {
	const evil = "away \x1b[2J\x1b]0;owned\x07 \u202e\r\u009b31m"
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.PermissionDenied, evil)
	}))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(boot, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "-b", boot},
		{"dump", "orders", "-b", boot, "-timeout", "1s"},
		{"explain", "orders", "/a/b", "-b", boot, "-timeout", "1s"},
		{"pick", "orders", "-b", boot, "-timeout", "1s"},
		{"watch", "orders", "-b", boot, "-timeout", "1s", "-once"},
		{"watch", "orders", "-b", boot, "-count", "2"},
		{"attach", lis.Addr().String(), "-csds", "-once"},
		{"attach", page.URL, "-once"},
		{"attach", page.URL, "-count", "1"},
		{"explain", "orders", "/a/b", "-at", page.URL},
	} {
		s := call(t, args...)
		if args[0] == "dump" {
			s.out = "" // JSON, whose texts are as they are
		}
		if all := s.out + s.errors; strings.ContainsAny(all, "\x1b\x07\u202e\r\u009b") {
			t.Errorf("xdslb %v prints %q", args, all)
		} else if args[0] != "watch" && !strings.Contains(all, "away") {
			t.Errorf("xdslb %v does not say what is wrong: %q", args, all)
		}
	}
}

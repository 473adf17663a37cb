// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate"
)

// TestWritableFiles checks that a bootstrap or an overlay that every user of the machine can change is
// logged once, and that other files are not.
func TestWritableFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such permission")
	}
	dir, log := t.TempDir(), &kit.Logs{}
	for _, mode := range []os.FileMode{0o666, 0o664, 0o602, 0o600} {
		files := map[string]string{
			"GRPC_XDS_BOOTSTRAP": `{"node": {"id": "n"}, "xds_servers": [{"server_uri": "localhost:1", "channel_creds": [{"type": "insecure"}]}]}`,
			"XDSLB_OVERLAY":      `{"patches": [{"resource": "cluster", "name": "*", "merge": {"lb_policy": "ROUND_ROBIN"}}]}`,
		}
		for variable, text := range files {
			file := filepath.Join(dir, variable+mode.String())
			kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
			if err := os.Chmod(file, mode); err != nil { // regardless of the umask
				t.Fatal(err)
			}
			t.Setenv(variable, file)
		}
		for range 2 {
			if _, err := integrate.NewBuilder(integrate.Config{Logger: slog.New(log)}); err != nil {
				t.Fatal(err)
			}
		}
		want := 0
		if mode&0o002 != 0 {
			want = 1
		}
		for variable, kind := range map[string]string{"GRPC_XDS_BOOTSTRAP": "bootstrap", "XDSLB_OVERLAY": "overlay"} {
			file := filepath.Join(dir, variable+mode.String())
			if n := len(log.With("WARN xdslb: every user of the machine can change", "kind="+kind, "file="+file, "chmod o-w")); n != want {
				t.Errorf("%v: %d lines about the %s, want %d:\n%s", mode, n, kind, want, log)
			}
		}
	}
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func minimal(uri string) string {
	return `{"xds_servers": [{"server_uri": "` + uri + `", "channel_creds": [{"type": "insecure"}]}]}`
}

// A27-BOOT-1: the file wins over the text, and empty is the same as unset.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "xds.json")
	if err := os.WriteFile(file, []byte(minimal("from-file")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, text, uri, source string }{
		{file, "", "from-file", "file " + file},
		{file, minimal("from-text"), "from-file", "file " + file},
		{file, "not JSON, and not looked at", "from-file", "file " + file},
		{"", minimal("from-text"), "from-text", "environment variable GRPC_XDS_BOOTSTRAP_CONFIG"},
	} {
		t.Setenv(envFile, tt.file)
		t.Setenv(envText, tt.text)
		c, err := Parser{}.Load()
		if err != nil {
			t.Errorf("Load with %+v: %v", tt, err)
			continue
		}
		if c.Servers[0].URI != tt.uri || c.Source != tt.source {
			t.Errorf("Load with %+v: server %s from %s", tt, c.Servers[0].URI, c.Source)
		}
	}
}

// A27-BOOT-11: a document that is absent or not found is an error that contains the searched
// places.
func TestLoadFails(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.json")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file, text string
		is               error
		want             []string
	}{
		{"unset", "", "", nil, []string{"environment", envFile, envText, "set"}},
		{"missing", filepath.Join(dir, "no.json"), minimal("a"), fs.ErrNotExist, []string{"file " + dir, "cannot be read", envFile}},
		{"directory", dir, "", nil, []string{"file " + dir, "cannot be read"}},
		{"empty", empty, minimal("a"), nil, []string{"file " + empty, "is empty", "xds_servers"}},
		{"endless", "/dev/zero", "", nil, []string{"file /dev/zero", "larger than"}},
		{"text as file", minimal("a"), "", nil, []string{"environment variable GRPC_XDS_BOOTSTRAP:", "contains JSON", "move the text to " + envText}},
		{"file as text", "", "/etc/xds.json", nil, []string{"environment variable " + envText, "line 1, column 1", "set " + envFile + " to its path"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat(tt.file); tt.name == "endless" && err != nil {
				t.Skip("no such device here")
			}
			t.Setenv(envFile, tt.file)
			t.Setenv(envText, tt.text)
			c, err := Parser{}.Load()
			if err == nil {
				t.Fatalf("Load succeeded: %v", c)
			}
			var e *parseError
			ok := errors.As(err, &e)
			if !ok || e.Source == "" || e.Problem == "" || e.Fix == "" {
				t.Errorf("incomplete: %#v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %q is not %v", err, tt.is)
			}
		})
	}
}

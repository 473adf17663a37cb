// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCheckCertificates: certificates that expire, that have expired, and that the roots
// beside them did not issue.
func TestCheckCertificates(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	path := func(name string) string { return filepath.Join(dir, name) }
	root, rootKey := certificate(t, "root", now.AddDate(5, 0, 0), nil, nil, path("root"))
	certificate(t, "other root", now.AddDate(5, 0, 0), nil, nil, path("other"))
	certificate(t, "good", now.AddDate(0, 0, 30), root, rootKey, path("good"))
	certificate(t, "soon", now.Add(5*time.Hour), root, rootKey, path("soon"))
	for _, row := range []struct {
		name, roots, own string
		at               time.Time
		code             int
		want             []string
	}{
		{"good", "root", "good", now, exitOK, []string{`client certificate "CN=good"`, "valid until 2030-01-31 12:00Z", "1 root in"}},
		{"soon", "root", "soon", now, exitFinding, []string{"warn certificate provider p: client certificate", "expires in 5h0m0s"}},
		{"expired", "root", "soon", now.AddDate(0, 0, 1), exitFinding, []string{"FAIL", "expired at 2030-01-01 17:00Z"}},
		{"early", "root", "good", now.AddDate(-20, 0, 0), exitFinding, []string{"FAIL", "not valid before"}},
		{"other roots", "other", "good", now, exitFinding, []string{"warn", "not issued by the roots"}},
		{"missing", "nothing", "good", now, exitFinding, []string{"FAIL", "nothing.pem"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			boot := fmt.Sprintf(`{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}],"node":{"id":"n"},
				"certificate_providers":{"p":{"plugin_name":"file_watcher","config":{"ca_certificate_file":%q,"certificate_file":%q,"private_key_file":%q}}}}`,
				path(row.roots+".pem"), path(row.own+".pem"), path(row.own+".key"))
			if err := os.WriteFile(path("boot"), []byte(boot), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			e := &env{ctx: t.Context(), stdout: &out, stderr: &out, now: func() time.Time { return row.at }}
			code := e.run([]string{"check", "-offline", "-b", path("boot")})
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range row.want {
				if !strings.Contains(text, want) {
					t.Errorf("check lacks %q:\n%s", want, out.String())
				}
			}
			if code != row.code {
				t.Errorf("exit code %d, want %d:\n%s", code, row.code, out.String())
			}
		})
	}
}

// TestCheckFiles: check reads the files of credentials without connecting, and accepts what channels
// accept, such as google_default.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	certificate(t, "root", time.Now().AddDate(1, 0, 0), nil, nil, filepath.Join(dir, "root"))
	check := func(creds string) []string {
		boot := filepath.Join(dir, "boot")
		if err := os.WriteFile(boot, []byte(fmt.Sprintf(`{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[%s}],"node":{"id":"n"}}`, creds)), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"check", "-offline", "-b", boot}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	wantCall(t, exitOK, check(`{"type":"google_default"}]`), "ok bootstrap")
	wantCall(t, exitOK, check(fmt.Sprintf(`{"type":"tls","config":{"ca_certificate_file":%q}}]`, file("root.pem"))), `ok ca_certificate_file: root "CN=root": valid until`)
	wantCall(t, exitFinding, check(fmt.Sprintf(`{"type":"tls","config":{"ca_certificate_file":%q}}]`, file("nothing.pem"))), "FAIL ca_certificate_file: open", "nothing.pem")
	wantCall(t, exitFinding, check(fmt.Sprintf(`{"type":"tls"}],"call_creds":[{"type":"jwt_token_file","config":{"jwt_token_file":%q}}]`, file("token"))), "FAIL jwt_token_file: open", "token")
}

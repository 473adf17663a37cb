// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// FuzzBootstrap parses arbitrary documents. Accepted ones have everything that a client needs,
// and their meaning does not depend on the layout.
func FuzzBootstrap(f *testing.F) {
	for _, dir := range []string{"good", "broken"} {
		for _, file := range documents(f, dir) {
			f.Add(read(f, file))
		}
	}
	for _, text := range []string{
		minimal("a:1"), strings.TrimSuffix(minimal("a:1"), "}") + `,"authorities":{"a":{},"":{},"b/c d":{}}}`,
		strings.TrimSuffix(minimal("a:1"), "}") + `,"client_default_listener_resource_name_template":"xdstp://none/t/%s"}`,
		strings.TrimSuffix(minimal("a:1"), "}") + `,"xds_servers":[]}`,       // a key twice
		withNode(`{"id":"\ud800","metadata":{"a":[null,1e308,{"b":true}]}}`), // half a character
		strings.Repeat(`{"a":`, 200) + strings.Repeat(`}`, 200), `[[[[`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c *Config
		var err error
		kit.Spend(t, 2048*len(text)+1<<20, func() { c, err = testParser().Parse("test", text) })
		var indented bytes.Buffer
		if json.Indent(&indented, text, " ", "\t") == nil {
			again, e := testParser().Parse("elsewhere", indented.Bytes())
			if (e == nil) != (err == nil) || err == nil && c.Fingerprint() != again.Fingerprint() {
				t.Fatalf("indented it is another document: %v, then %v", err, e)
			}
		} else if err == nil {
			t.Fatal("was accepted, but is not JSON")
		}
		if err != nil {
			if len(err.Error()) > 64<<10 {
				t.Errorf("error is %d bytes long: %.500s", len(err.Error()), err)
			}
			checkMistakes(t, "test", err)
			return
		}
		checkUsable(t, text, c)
	})
}

// FuzzCertConfig reads "tls" credentials and certificate providers of arbitrary configurations. Only the
// types of the program are accepted, files are complete, and an instance without roots verifies nothing.
func FuzzCertConfig(f *testing.F) {
	for _, config := range []string{
		`{}`, `[]`, `"x"`,
		`{"certificate_file":"/a","private_key_file":"/b"}`, // an identity only
		`{"ca_certificate_file":"/c","refresh_interval":"1s"}`,
		`{"spiffe_trust_bundle_map_file":"/d"}`,
		`{"ca_certificate_file":"","certificate_file":""}`,        // empty is absent
		`{"ca_certificate_file":null,"CA_certificate_file":"/x"}`, // names are exact
		`{"ca_certificate_file":"/c","refresh_interval":"-1s"}`,
	} {
		f.Add(config, "tls", "file_watcher")
		f.Add(config, "insecure", "x")
	}
	check := func(t *testing.T, f CertFiles) {
		if f.RefreshInterval <= 0 || (f.CertificateFile == "") != (f.PrivateKeyFile == "") {
			t.Fatalf("files %+v", f)
		}
	}
	f.Fuzz(func(t *testing.T, config, creds, plugin string) {
		if !json.Valid([]byte(config)) {
			return
		}
		c, err := Parser{}.Parse("test", fmt.Appendf(nil, `{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":%s,"config":%s}]}],"certificate_providers":{"default":{"plugin_name":%s,"config":%[2]s}}}`,
			canonical(creds), config, canonical(plugin)))
		if err != nil {
			return
		}
		if creds != "tls" && creds != "insecure" {
			t.Fatalf("credentials %q are accepted", creds)
		}
		if certs, _ := c.Servers[0].Files(); (certs != nil) != (creds == "tls") {
			t.Fatalf("credentials %q have files %v", creds, certs)
		} else if certs != nil {
			check(t, certs.Files())
		}
		err = c.CheckCertProvider("default", true)
		if p := c.CertProviders["default"]; p.Files == nil {
			if err == nil || plugin == "file_watcher" {
				t.Fatalf("plugin %q can be used: %+v", plugin, p)
			}
		} else {
			files := p.Files.Files()
			check(t, files)
			if has := files.CACertificateFile != "" || files.SPIFFEBundleMapFile != ""; has != (err == nil) {
				t.Fatalf("error %v of roots in %+v", err, files)
			}
		}
	})
}

// FuzzListenerName compares the names that come of templates, authorities and
// targets with A47's rules, and finds the servers of an authority by them.
func FuzzListenerName(f *testing.F) {
	for _, s := range []struct{ template, authority, target string }{
		{"", "", "s"}, // the default (A27-RES-1)
		{"%s", "a", "s"},
		{"grpc/%s?x=%s#f", "a.example.com:1", "my service/é"},
		{"xdstp:///envoy.config.listener.v3.Listener/%s", "a b", "100%"}, // encoded
		{"xdstp://none/envoy.config.listener.v3.Listener/%s", "none", "s"},
		{"xdstp:", "[::1]", "\xff"}, // not UTF-8
		{"fixed", "%41", ""},        // no target
		{"%%s%d", "x", "%s"},        // replaced once only
		{"xdstp://a/t/%s", "a", "../?#"},
		{"", "azAZ09", "azAZ09/{}"}, // the first and last letters and digits
	} {
		f.Add(s.template, s.authority, s.target)
	}
	f.Fuzz(func(t *testing.T, template, authority, target string) {
		template, authority = strings.ToValidUTF8(template, "?"), strings.ToValidUTF8(authority, "?")
		text := strings.TrimSuffix(minimal("top:1"), "}") + fmt.Sprintf(`,"authorities":{%s:%s},"client_default_listener_resource_name_template":%s}`,
			canonical(authority), minimal("own:1"), canonical(template))
		c, err := Parser{}.Parse("test", []byte(text))
		if err != nil {
			t.Fatalf("%s\nis refused: %v", text, err)
		}
		if template == "" {
			template = "%s"
		}
		name, err := c.ListenerName("", target)
		want := strings.ReplaceAll(template, "%s", target)
		if strings.HasPrefix(template, "xdstp:") {
			want = strings.ReplaceAll(template, "%s", escape(target, `/`))
		}
		switch {
		case err == nil && name != want:
			t.Fatalf("ListenerName(%q) = %q, want %q, of template %q", target, name, want, template)
		case err != nil && target != "" && !strings.HasPrefix(want, "xdstp:"):
			t.Fatalf("ListenerName(%q): %v, of template %q", target, err, template)
		}
		if authority == "" || target == "" {
			return
		}
		name, err = c.ListenerName(authority, target)
		want = "xdstp://" + escape(authority, `\[\]`) + "/envoy.config.listener.v3.Listener/" + escape(target, `/`)
		if err != nil || name != want {
			t.Fatalf("ListenerName(%q, %q) = %q, %v, want %q", authority, target, name, err, want)
		}
		if servers, err := c.ServersFor(name); err != nil || len(servers) != 1 || servers[0].URI != "own:1" {
			t.Fatalf("ServersFor(%q) = %v, %v, want the servers of authority %q", name, servers, err, authority)
		}
	})
}

// escape percent-encodes characters that RFC 3986 does not allow, except for more.
func escape(s, more string) string {
	other := regexp.MustCompile(`[^A-Za-z0-9\-._~!$&'()*+,;=:@` + more + `]`)
	return other.ReplaceAllStringFunc(s, func(s string) (encoded string) {
		for i := range len(s) {
			encoded += fmt.Sprintf("%%%02X", s[i])
		}
		return encoded
	})
}

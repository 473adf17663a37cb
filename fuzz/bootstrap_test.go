// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// bootstrapSeeds are documents that the testdata of package bootstrap does not
// have, and why each is of interest.
var bootstrapSeeds = []string{
	`{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"insecure"}]}]}`, // the least there can be
	`{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"insecure"}]}],"authorities":{"a":{},"":{},"b/c d":{}}}`,
	`{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"insecure"}]}],"client_default_listener_resource_name_template":"xdstp://none/t/%s"}`,
	`{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"insecure"}],"server_features":["xds_v3","xds_v3"]}],"xds_servers":[]}`, // a key twice
	`{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"tls","config":{}}],"call_creds":[{"type":"jwt_token_file","config":{"jwt_token_file":"/none"}}]}]}`,
	`{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"insecure"}]}],"node":{"id":"\ud800","metadata":{"a":[null,1e308,{"b":true}]}}}`, // half a character
	strings.Repeat(`{"a":`, 200) + strings.Repeat(`}`, 200),
	`[[[[`,
}

// FuzzBootstrap parses arbitrary documents. Accepted ones have everything that a client needs,
// and their meaning does not depend on the layout.
func FuzzBootstrap(f *testing.F) {
	files, err := filepath.Glob("../xds/bootstrap/testdata/*/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no documents: %v", err)
	}
	for _, file := range files {
		f.Add(read(f, file))
	}
	for _, text := range bootstrapSeeds {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c *bootstrap.Config
		var err error
		spend(t, 2048*len(text)+1<<20, func() { c, err = bootstrap.Parser{}.Parse("test", text) })
		var indented bytes.Buffer
		if json.Indent(&indented, text, " ", "\t") == nil {
			again, e := bootstrap.Parser{}.Parse("elsewhere", indented.Bytes())
			if (e == nil) != (err == nil) || err == nil && c.Fingerprint() != again.Fingerprint() {
				t.Fatalf("indented it is another document: %v, then %v", err, e)
			}
		} else if err == nil {
			t.Fatal("was accepted, but is not JSON")
		}
		if err != nil {
			if !strings.Contains(err.Error(), "test") {
				t.Errorf("error %v does not name the document", err)
			}
			if len(err.Error()) > 64<<10 {
				t.Errorf("error is %d bytes long: %.500s", len(err.Error()), err)
			}
			return
		}
		checkConfig(t, c)
	})
}

// fullName matches xdstp names with an authority, a type and an id. A template that starts with
// the authority's prefix may yield other names.
var fullName = regexp.MustCompile(`^xdstp://[^/?#]*/[^/?#]+/[^?#]`)

func checkConfig(t *testing.T, c *bootstrap.Config) {
	t.Helper()
	chains := [][]*bootstrap.Server{c.Servers}
	for name, a := range c.Authorities {
		chains = append(chains, a.Servers)
		if name == "" {
			continue
		}
		listener, err := c.ListenerName(name, "target")
		if err != nil {
			t.Fatalf("ListenerName(%q): %v", name, err)
		}
		want := a.Servers
		if !fullName.MatchString(listener) {
			want = c.Servers // it is of the old style
		}
		if servers, err := c.ServersFor(listener); err != nil || !slices.Equal(servers, want) {
			t.Errorf("ServersFor(%q) = %v, %v, want %v, of authority %q", listener, servers, err, want, name)
		}
	}
	for _, chain := range chains {
		if len(chain) == 0 {
			t.Fatal("a list of servers is empty")
		}
		for _, s := range chain {
			opts, stop, err := s.DialOptions()
			if err != nil || len(opts) == 0 || s.URI == "" || s.Key() == "" {
				t.Fatalf("server %v has %d options, %v", s, len(opts), err)
			}
			stop()
		}
	}
	checkNode(t, c)
	again, err := bootstrap.Parser{}.Parse("string", []byte(c.String()))
	if err != nil {
		t.Fatalf("its own description is refused: %v\n%s", err, c)
	}
	for _, p := range c.CertProviders {
		if p.Files == nil && p.Config != nil {
			return // which the description leaves out
		}
	}
	if again.Fingerprint() != c.Fingerprint() {
		t.Errorf("is described as\n%s\nwhich means\n%s", c, again)
	}
}

// checkNode checks that the node can be sent, and is the caller's.
func checkNode(t *testing.T, c *bootstrap.Config) {
	t.Helper()
	n := c.Node()
	if _, err := proto.Marshal(n); err != nil {
		t.Fatalf("node %v cannot be sent: %v", n, err)
	}
	if n.GetUserAgentName() == "" || len(n.GetClientFeatures()) == 0 || len(c.LRSNode().GetClientFeatures()) != len(n.GetClientFeatures())+1 {
		t.Errorf("nodes are %v and %v", n, c.LRSNode())
	}
	before := proto.CloneOf(n)
	n.Id, n.ClientFeatures[0] = "changed", "changed"
	n.Locality = &corev3.Locality{Zone: "changed"}
	if n.Metadata != nil {
		clear(n.Metadata.Fields)
	}
	if !proto.Equal(c.Node(), before) {
		t.Errorf("node is %v after a change to a copy, want %v", c.Node(), before)
	}
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
	f.Fuzz(func(t *testing.T, config, creds, plugin string) {
		if !json.Valid([]byte(config)) {
			return
		}
		text := fmt.Sprintf(`{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":%s,"config":%s}]}],"certificate_providers":{"default":{"plugin_name":%s,"config":%s}}}`,
			quoteJSON(creds), config, quoteJSON(plugin), config)
		c, err := bootstrap.Parser{}.Parse("test", []byte(text))
		if err != nil {
			return
		}
		if creds != "tls" && creds != "insecure" {
			t.Fatalf("credentials %q are accepted", creds)
		}
		if certs, _ := c.Servers[0].Files(); (certs != nil) != (creds == "tls") {
			t.Fatalf("credentials %q have files %v", creds, certs)
		} else if certs != nil {
			checkCertFiles(t, certs.Files())
		}
		err = c.CheckCertProvider("default", true)
		if p := c.CertProviders["default"]; p.Files == nil {
			if err == nil || plugin == "file_watcher" {
				t.Fatalf("plugin %q can be used: %+v", plugin, p)
			}
		} else {
			files := p.Files.Files()
			checkCertFiles(t, files)
			if has := files.CACertificateFile != "" || files.SPIFFEBundleMapFile != ""; has != (err == nil) {
				t.Fatalf("error %v of roots in %+v", err, files)
			}
		}
		if c.CheckCertProvider("other", true) == nil {
			t.Fatal("an instance that does not exist can be used")
		}
	})
}

func checkCertFiles(t *testing.T, f bootstrap.CertFiles) {
	t.Helper()
	if f.RefreshInterval <= 0 || (f.CertificateFile == "") != (f.PrivateKeyFile == "") {
		t.Fatalf("files %+v", f)
	}
}

// FuzzListenerName compares the names that come of templates, authorities and
// targets with A47's rules, and finds the servers of an authority by them.
func FuzzListenerName(f *testing.F) {
	seeds := []struct{ template, authority, target string }{
		{"", "", "s"}, // the default (A27-RES-1)
		{"%s", "a", "s"},
		{"grpc/%s?x=%s#f", "a.example.com:1", "my service/é"},
		{"xdstp:///envoy.config.listener.v3.Listener/%s", "a b", "100%"}, // encoded
		{"xdstp://none/envoy.config.listener.v3.Listener/%s", "none", "s"},
		{"xdstp:", "[::1]", "\xff"}, // not UTF-8
		{"fixed", "%41", ""},        // no target
		{"%%s%d", "x", "%s"},        // replaced once only
		{"xdstp://a/t/%s", "a", "../?#"},
	}
	for _, s := range seeds {
		f.Add(s.template, s.authority, s.target)
	}
	f.Fuzz(func(t *testing.T, template, authority, target string) {
		template, authority = strings.ToValidUTF8(template, "?"), strings.ToValidUTF8(authority, "?")
		const server = `[{"server_uri":%q,"channel_creds":[{"type":"insecure"}]}]`
		text := fmt.Sprintf(`{"xds_servers":`+server+`,"authorities":{%s:{"xds_servers":`+server+`}},"client_default_listener_resource_name_template":%s}`,
			"top:1", quoteJSON(authority), "own:1", quoteJSON(template))
		c, err := bootstrap.Parser{}.Parse("test", []byte(text))
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

func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
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

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestBundleMap (A87): roots by trust domain, and invalid bundle maps.
func TestBundleMap(t *testing.T) {
	block, _ := pem.Decode(newCA(t, "ca").pem)
	cert := base64.StdEncoding.EncodeToString(block.Bytes)
	for _, tt := range []struct{ text, want string }{
		{`{"trust_domains": {"a.example": {"keys": [{"use": "x509-svid", "x5c": ["` + cert + `"]}, {"use": "jwt-svid"}, {}]}, "b.example": {"keys": null}}}`, ""},
		{`{"trust_domains": {"a": {"spiffe_sequence": 1, "spiffe_refresh_hint": 2, "keys": [], "x": {}}}}`, ""},
		{``, "is not a SPIFFE bundle map"},
		{`[]`, "is not a SPIFFE bundle map"},
		{`{}`, `has no "trust_domains"`},
		{`{"trust_domains": {"A": {}}}`, `"A" is not a valid trust domain name`},
		{`{"trust_domains": {"a/b": {}}}`, `"a/b" is not a valid trust domain name`},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid"}]}}}`, "keys[0].x5c must be one certificate, not 0"},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["` + cert + `", "` + cert + `"]}]}}}`, "must be one certificate, not 2"},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["AAAA"]}]}}}`, `trust domain "a": keys[0].x5c: x509`},
		{`{"trust_domains": {"a": {"keys": [{"use": "x509-svid", "x5c": ["%"]}]}}}`, "is not a SPIFFE bundle map"},
	} {
		pools, err := parseBundleMap([]byte(tt.text))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || err == nil && len(pools) == 0 {
			t.Errorf("%.60s: %v, %v, want %q", tt.text, pools, err, tt.want)
		}
	}
}

// TestCheckCertProvider (A29) checks which instances clusters may use, and for which purpose. A
// plugin that the program lacks is not an error of the bootstrap until a cluster uses it.
func TestCheckCertProvider(t *testing.T) {
	p := testParser()
	p.CertPlugin = func(name string, config json.RawMessage) error {
		if name != "vault" {
			return errors.New("there is no such plugin")
		}
		if string(config) != `{"x":1}` {
			return fmt.Errorf("cannot use %s", config)
		}
		return nil
	}
	const text = `{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "insecure"}]}], "certificate_providers": {
		"all": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "a", "certificate_file": "b", "private_key_file": "c"}},
		"identity": {"plugin_name": "file_watcher", "config": {"certificate_file": "b", "private_key_file": "c"}},
		"roots": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "a"}},
		"domains": {"plugin_name": "file_watcher", "config": {"spiffe_trust_bundle_map_file": "a"}},
		"vault": {"plugin_name": "vault", "config": {"x": 1}},
		"wrong": {"plugin_name": "vault", "config": {"x": 2}},
		"alien": {"plugin_name": "alien"}}}`
	c, err := p.Parse("test", []byte(text))
	kit.Must(t, err)
	for instance, want := range map[string][2]string{ // for an identity, for roots
		"all": {}, "vault": {},
		"identity": {"", "ca_certificate_file or spiffe_trust_bundle_map_file"},
		"roots":    {}, // the client shows no certificate
		"domains":  {},
		"wrong":    {`plugin "vault" is not registered in the client, or rejects its configuration`, `plugin "vault" is not registered`},
		"alien":    {`plugin "alien" is not registered in the client`, `plugin "alien" is not registered`},
		"gone":     {`identity certificate provider instance name "gone" missing in bootstrap configuration`, `root certificate provider instance name "gone" missing in bootstrap configuration`},
	} {
		for i, want := range want {
			if err := c.CheckCertProvider(instance, i == 1); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, roots %v: %v, want %q", instance, i == 1, err, want)
			}
		}
	}
	if c, err = (Parser{}.Parse("test", []byte(text))); err != nil || c.CheckCertProvider("vault", true) == nil {
		t.Errorf("without plugins: %v", err)
	}
}

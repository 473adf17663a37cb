// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestFallback: the source is the last server of every chain, and its name depends on the document.
func TestFallback(t *testing.T) {
	const insecure = `, "channel_creds": [{"type": "insecure"}]}`
	parse := func(p Parser, server string) *Config {
		t.Helper()
		c, err := p.Parse("test", []byte(`{"xds_servers": [{"server_uri": "`+server+`"`+insecure+`],
			"authorities": {"a": {}, "b": {"xds_servers": [{"server_uri": "other:1"`+insecure+`]}}}`))
		kit.Must(t, err)
		return c
	}
	with := Parser{Fallback: "remembered:/dir/program-"}
	plain, c := parse(Parser{}, "cp:1"), parse(with, "cp:1")
	want := "remembered:/dir/program-" + plain.Fingerprint()
	for name, chain := range map[string][]*Server{"default": c.Servers, "a": c.Authorities["a"].Servers, "b": c.Authorities["b"].Servers} {
		if len(chain) != 2 || chain[1].URI != want || !chain[1].Local() {
			t.Errorf("chain of %s: %v, want two with %s", name, chain, want)
		}
	}
	if c.Fingerprint() == plain.Fingerprint() || parse(with, "cp:2").Servers[1].URI == want || strings.Contains(plain.String(), "remembered") {
		t.Error("a document shares a file, or a client, with another one")
	}
}

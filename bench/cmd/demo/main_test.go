// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/leak"
)

// TestPage checks that -page serves the debug page of a connected channel until it is interrupted.
func TestPage(t *testing.T) {
	leak.Check(t)
	*page = "127.0.0.1:0"
	defer func() { *page = "" }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, done := &kit.Logs{}, make(chan int, 1)
	go func() { done <- run(ctx, out) }()
	var url string
	kit.WaitFor(t, "the URL of the page", func() bool {
		url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/debug/xdslb/`).FindString(out.String())
		return url != ""
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	kit.WaitFor(t, "a channel that is READY on the page", func() bool {
		r, err := client.Get(url)
		kit.Must(t, err)
		text, err := io.ReadAll(r.Body)
		kit.Must(t, err)
		_ = r.Body.Close()
		return strings.Contains(string(text), "xds:///demo") && strings.Contains(string(text), "READY")
	})
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d after the interrupt, want 0", code)
	}
	if text := out.String(); strings.Count(text, "\n") != 1 {
		t.Errorf("the output is more than the URL: the scenario of the demo ran too: %s", text)
	}
}

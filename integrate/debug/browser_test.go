// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/xdslb/xdslb/integrate"
)

var (
	serveAt     = flag.String("page", "", "serve the page of 300 channels at this `address`, check it with Chromium, and wait for an interrupt (make page)")
	screenshots = flag.String("screenshots", "", "check the page of 300 channels with Chromium, and write screenshots to this `directory`")
)

// TestBrowser: in Chromium no page is wider than the screen, and no cell of a table is outside of it,
// at widths of 390, 1249 and 1280 pixels, light and dark.
func TestBrowser(t *testing.T) {
	if *serveAt == "" && *screenshots == "" {
		t.Skip("make page runs it")
	}
	fleet(t)
	lis, err := net.Listen("tcp", cmp.Or(*serveAt, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: Handler()}
	go func() { _ = server.Serve(lis) }()
	defer func() { _ = server.Close() }()
	at := "http://" + lis.Addr().String() + "/"
	b := startBrowser(t)
	if b != nil {
		for name, query := range browserPages() {
			for _, width := range []int{390, 1249, 1280} {
				for _, scheme := range []string{"light", "dark"} {
					b.check(at+query, fmt.Sprintf("%s-%d-%s.png", name, width, scheme), width, scheme)
				}
			}
		}
	}
	if *serveAt != "" {
		t.Logf("%s is served until an interrupt", at)
		done := make(chan os.Signal, 1)
		signal.Notify(done, os.Interrupt)
		<-done
	}
}

// browserPages returns the queries of the pages to check.
func browserPages() map[string]string {
	pages := map[string]string{"channels": "", "filtered": "?show=problems&channelsort=target"}
	for _, c := range integrate.Channels() {
		query := "?channel=" + strconv.FormatInt(c.Number(), 10)
		switch c.Target() {
		case "xds:///catalog":
			pages["endpoints"] = query + "&method=/shop.Cart/Add&headers=user:+7"
			pages["failing"] = query + "&cluster=catalog&endpointsort=failed"
		case "xds:///gateway":
			pages["clusters"] = query + "&clustersort=failed"
		case "xds:///missing-1", "xds:///failed-over", "xds:///invalid":
			pages[c.Target()[len("xds:///"):]] = query
		}
	}
	return pages
}

// browser is a Chromium that is controlled by the DevTools protocol through pipes.
type browser struct {
	t       *testing.T
	out     *os.File
	in      *bufio.Reader
	session string
	last    int
}

// startBrowser returns nil if there is no Chromium.
func startBrowser(t *testing.T) *browser {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
		}
	}
	if path == "" {
		t.Log("NOT CHECKED: there is no Chromium (Debian package chromium)")
		return nil
	}
	// File descriptors 3 and 4 of Chromium.
	commands, out, err1 := os.Pipe()
	in, results, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{commands, results}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = commands.Close(), results.Close()
	b := &browser{t: t, out: out, in: bufio.NewReader(in)}
	t.Cleanup(func() {
		b.session = ""
		b.call("Browser.close", nil, nil)
		_ = cmd.Wait()
		_, _ = out.Close(), in.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Page.enable", nil, nil)
	return b
}

// message is a message of the protocol, or an event of it.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// call calls a method of the protocol.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.last++
	text, err := json.Marshal(message{ID: b.last, SessionID: b.session, Method: method, Params: params})
	if err == nil {
		_, err = b.out.Write(append(text, 0))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	m := b.receive(func(m message) bool { return m.ID == b.last })
	if m.Error != nil {
		b.t.Fatalf("%s: %s", method, m.Error)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			b.t.Fatal(err)
		}
	}
}

// receive receives messages until one is wanted.
func (b *browser) receive(wanted func(message) bool) (m message) {
	b.t.Helper()
	for {
		text, err := b.in.ReadBytes(0)
		if err != nil {
			b.t.Fatal(err)
		}
		m = message{}
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			b.t.Fatal(err)
		}
		if wanted(m) {
			return m
		}
	}
}

// outside is an expression for the text of the first element that is wider than the screen.
const outside = `(() => {
	if (document.scrollingElement.scrollWidth > innerWidth) return "the page: " + document.scrollingElement.scrollWidth;
	const cell = [...document.querySelectorAll("td, th, caption, input, a, pre")].find(e => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth);
	return cell ? cell.outerHTML.slice(0, 200) : "";
})()`

// check loads a page and checks its width.
func (b *browser) check(url, name string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.receive(func(m message) bool { return m.Method == "Page.loadEventFired" })
	var found struct{ Result struct{ Value string } }
	b.call("Runtime.evaluate", map[string]any{"expression": outside}, &found)
	if found.Result.Value != "" {
		b.t.Errorf("%s: wider than %d pixels: %s", name, width, found.Result.Value)
	}
	if *screenshots == "" {
		return
	}
	var shot struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "clip": map[string]any{"x": 0, "y": 0, "width": width, "height": 2400, "scale": 1}}, &shot)
	if err := os.WriteFile(filepath.Join(*screenshots, name), shot.Data, 0o600); err != nil {
		b.t.Error(err)
	}
}

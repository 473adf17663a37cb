// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package doccheck

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var quickstart = flag.Bool("quickstart", false, "follow integrate/docs/quickstart.md; builds six commands")

// TestQuickstart follows integrate/docs/quickstart.md: its server and client with stock
// xDS, switched over, back by the environment, and after a line to the control plane.
func TestQuickstart(t *testing.T) {
	if !*quickstart {
		t.Skip("make quickstart runs it")
	}
	page, err := os.ReadFile(filepath.Join(root, "integrate/docs/quickstart.md"))
	if err != nil {
		t.Fatal(err)
	}
	var code []string // server, client, and the fragments of step 4
	for _, s := range snippets("quickstart.md", string(page))[1:5] {
		code = append(code, s.text)
	}
	edit := func(text, old, new string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("the client has no %q any more", old)
		}
		return strings.Replace(text, old, new, 1)
	}
	switched := edit(code[1], "grpc.NewClient", "integrate.NewClient")
	switched = edit(switched, "import (\n", "import (\n\t\"github.com/xdslb/xdslb/integrate\"\n")
	debugged := edit(code[2], `"127.0.0.1:6060"`, `os.Getenv("PAGE")`) // several run at the same time
	explained := edit(switched, "\tfor ; ;", code[3]+"\tfor ; ;")
	explained = edit(explained, "func main() {\n", "func main() {\n"+debugged)
	explained = edit(explained, "import (\n", "import (\n\t\"fmt\"\n\t\"net/http\"\n\t\"os\"\n\t\"github.com/xdslb/xdslb/integrate/debug\"\n")
	bin := t.TempDir()
	if out, err := build(t, map[string]string{"server": code[0], "stock": code[1], "ours": explained}, "-o", bin+"/", "../cmd/controlplane"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	first, second := freeAddr(t), freeAddr(t)
	start(t, nil, filepath.Join(bin, "server"), first)
	start(t, nil, filepath.Join(bin, "server"), second)
	file := filepath.Join(bin, "xds.json")
	control := start(t, nil, filepath.Join(bin, "controlplane"), "-listen", "127.0.0.1:0", "-bootstrap", file,
		fmt.Sprintf("greeter=%s*1,%s*3", first, second))
	control.await(t, "xds:///greeter: 2 endpoints")
	env := []string{"GRPC_XDS_BOOTSTRAP=" + file}
	answers := func(a, b int) string {
		shares := map[string]int{first: a, second: b}
		if b == 0 {
			delete(shares, second)
		}
		return fmt.Sprint(shares) // as the client prints them
	}

	start(t, env, filepath.Join(bin, "stock")).await(t, answers(50, 50))
	shown, shownBack := freeAddr(t), freeAddr(t)
	client := start(t, append(env, "PAGE="+shown), filepath.Join(bin, "ours"))
	client.await(t, `cluster "greeter": 100 % of the route`)
	client.await(t, answers(25, 75))
	if page := fetch(t, shown); !strings.Contains(page, "75 %") || !strings.Contains(page, second) {
		t.Errorf("the debug page lacks the shares: %s", page)
	}
	if !slices.Contains(foreign, "XDSLB_DISABLE") {
		start(t, append(env, "XDSLB_DISABLE=greeter*", "PAGE="+shownBack), filepath.Join(bin, "ours")).await(t, answers(50, 50))
		if page := fetch(t, shownBack); !strings.Contains(page, "take the pattern out of XDSLB_DISABLE") {
			t.Errorf("the debug page does not say how to go forward: %s", page)
		}
	}
	if _, err := io.WriteString(control.input, "greeter="+first+"\n"); err != nil {
		t.Fatal(err)
	}
	client.await(t, answers(100, 0))
	control.stop()
	client.await(t, answers(100, 0))
}

// fetch returns the page at an address.
func fetch(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// freeAddr returns an address on loopback without a listener. Its port is below the range of
// automatically assigned ports, so that no other process takes it in the meantime.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if lis, err := net.Listen("tcp", addr); err == nil {
			_ = lis.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// A process runs until it is stopped, at the latest with the test.
type process struct {
	input io.Writer
	lines chan string
	stop  func()
}

func start(t *testing.T, env []string, command string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = append(os.Environ(), env...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{input: input, lines: make(chan string, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(output); s.Scan(); {
			select {
			case p.lines <- s.Text():
			case <-ctx.Done():
			}
		}
		_ = cmd.Wait() // it is killed
	}()
	p.stop = func() { cancel(); <-done }
	t.Cleanup(p.stop)
	return p
}

// await waits for a line with a text.
func (p *process) await(t *testing.T, text string) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	var last string
	for {
		select {
		case line := <-p.lines:
			if last = line; strings.Contains(line, text) {
				return
			}
		case <-limit:
			t.Fatalf("no line has %q; the last is %q", text, last)
		}
	}
}

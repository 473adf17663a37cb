// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestRememberedFile: a remembered file is read unless it is a link, writable by others, or older than a day, or
// from the future. A file that replaces a link leaves the link's target alone, and old temporary files go.
func TestRememberedFile(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "r"), filepath.Join(dir, "other")
	read := func(want string) {
		t.Helper()
		text, _, err := remembered{name}.read()
		if want == "" && (err != nil || string(text) != document(1)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes, error %v; want error %q", len(text), err, want)
		}
	}
	check := func(err error) {
		t.Helper()
		kit.Must(t, err)
	}
	read("no such file")
	check(os.WriteFile(other, []byte("other"), 0o600))
	if err := os.Symlink(other, name); err == nil {
		read("not a regular file")
	}
	left := filepath.Join(dir, ".xdslb-left")
	check(os.WriteFile(left, nil, 0o600))
	check(os.Chtimes(left, time.Time{}, time.Now().Add(-2*time.Hour)))
	check(replaceFile(name, []byte(document(1))))
	read("")
	if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
		t.Errorf("the target of a link is %q, %v", text, err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("an old temporary file is left")
	}
	for age, want := range map[time.Duration]string{23 * time.Hour: "", 25 * time.Hour: "25h0m0s old", -time.Hour: "old"} {
		at := time.Now().Add(-age)
		check(os.Chtimes(name, at, at))
		read(want)
	}
	now := time.Now()
	check(os.Chtimes(name, now, now))
	if runtime.GOOS != "windows" {
		check(os.Chmod(name, 0o620))
		read("only its owner may write")
	}
}

// TestReplaceKilled: of 20 processes that are killed while they replace a file, none leaves a file that is neither the old nor the new
// one.
func TestReplaceKilled(t *testing.T) {
	const variable = "XDSLB_TEST_REPLACE"
	texts := [][]byte{[]byte(document(1) + strings.Repeat(" ", 1<<20)), []byte(document(2) + strings.Repeat(" ", 3<<20))}
	if name := os.Getenv(variable); name != "" {
		_, _ = os.Stdout.WriteString("begin\n")
		for i := 0; ; i++ {
			kit.Must(t, replaceFile(name, texts[i%2]))
		}
	}
	name := filepath.Join(t.TempDir(), "r")
	kit.Must(t, replaceFile(name, texts[0]))
	for i := range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestReplaceKilled$")
		cmd.Env = append(os.Environ(), variable+"="+name)
		out, err := cmd.StdoutPipe()
		kit.Must(t, err)
		kit.Must(t, cmd.Start())
		_, _ = io.ReadFull(out, make([]byte, len("begin\n")))
		time.Sleep(time.Duration(i) * time.Millisecond) // another moment each time; none can fail
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, _, err := remembered{name}.read()
		if err != nil || !bytes.Equal(text, texts[0]) && !bytes.Equal(text, texts[1]) {
			t.Fatalf("%d bytes after a kill, %v", len(text), err)
		}
	}
}

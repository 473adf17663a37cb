// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// lines is a log for tests.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// take returns the lines since the last call.
func (l *lines) take() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return l.buf.String()
}

const onePatch, twoPatches = `{"patches": [{"resource": "cluster", "name": "a", "merge": {"lb_policy": "MAGLEV"}}]}`,
	`{"patches": [{"resource": "cluster", "name": "b", "merge": {"lb_policy": "MAGLEV"}}, {"resource": "cluster", "name": "c", "merge": {"lb_policy": "RANDOM"}}]}`

func TestSourceReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "overlay.json")
		write := func(text string) {
			t.Helper()
			synctest.Wait() // for a read in progress, which might see an incomplete file
			kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
			time.Sleep(pollInterval)
			synctest.Wait()
		}
		write(onePatch)
		log := &lines{}
		s, err := Open("document", []byte(onePatch), file, slog.New(slog.NewTextHandler(log, nil)))
		kit.Must(t, err)
		var names []string
		for _, p := range s.Overlay().Patches() {
			names = append(names, p.String())
		}
		if got, want := strings.Join(names, ", "), "document: patches[0], file "+file+": patches[0]"; got != want {
			t.Errorf("patches %s, want %s", got, want)
		}
		var changes int
		stop := s.Watch(func() { changes++ })
		expect := func(when string, wantChanges, wantPatches int, texts ...string) {
			t.Helper()
			got := log.take()
			for _, text := range texts {
				if !strings.Contains(got, text) {
					t.Errorf("%s: log %q lacks %q", when, got, text)
				}
			}
			if len(texts) == 0 && got != "" {
				t.Errorf("%s: log %q", when, got)
			}
			if n := len(s.Overlay().Patches()); changes != wantChanges || n != wantPatches {
				t.Errorf("%s: %d changes and %d patches, want %d and %d", when, changes, n, wantChanges, wantPatches)
			}
		}
		write(onePatch)
		expect("unchanged", 0, 2)
		write(twoPatches)
		expect("changed", 1, 3, "level=INFO", "reloaded", "patches=3")
		write(`{"patches": [{"resource": "cluster", "name": "b"}]}`)
		expect("invalid", 1, 3, "level=WARN", "patches[0].merge: must be a JSON object")
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("Err() = %v", err)
		}
		time.Sleep(time.Minute)
		expect("still invalid", 1, 3)
		kit.Must(t, os.Remove(file))
		time.Sleep(2 * pollInterval)
		expect("removed", 1, 3, "level=WARN", "cannot be read")
		write(twoPatches)
		expect("valid again", 2, 3, "level=INFO", "reloaded")
		if s.Err() != nil {
			t.Errorf("Err() = %v after a reload", s.Err())
		}
		write(onePatch)
		s.Refresh() // it is watched
		expect("another one", 3, 2, "reloaded")
		stop()
		write(twoPatches)
		expect("not watched", 3, 2)
		s.Refresh()
		expect("read again", 3, 3, "reloaded")
		again, err := Open("document", []byte(onePatch), file, nil)
		if again != s || err != nil {
			t.Errorf("Open of the same overlay returned another Source, %v", err)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overlay.json")
	if s, err := Open("document", nil, "", nil); s != nil || err != nil || s.Overlay() != nil || s.Err() != nil {
		t.Errorf("Open without an overlay returned %v, %v", s, err)
	}
	if _, err := Open("document", nil, file, nil); err == nil || !strings.Contains(err.Error(), "xdslb: overlay: file "+file+": cannot be read: ") {
		t.Errorf("Open of a missing file returned %v", err)
	}
	for _, text := range []string{"", "{", strings.Repeat(" ", maxFile+1)} {
		kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		for range 2 { // an unchanged file is still invalid
			if _, err := Open("document", nil, file, nil); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("Open of %.10q returned %v", text, err)
			}
		}
	}
	if _, err := Open("document", []byte("{"), "", nil); err == nil || !strings.Contains(err.Error(), "xdslb: overlay: document: invalid JSON: the document is incomplete") {
		t.Errorf("Open of an invalid document returned %v", err)
	}
}

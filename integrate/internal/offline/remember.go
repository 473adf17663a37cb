// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
)

// Remembered is the scheme of resources that a client has written by Remember.
const Remembered = "remembered:"

const (
	rememberEvery = time.Minute
	rememberMax   = 24 * time.Hour // the age of a file that is used
)

// remembered is the source of such resources. A name that they lack may exist, so the client waits for it.
type remembered struct{ name string }

// Run implements xds.Source.
func (r remembered) Run(ctx context.Context, s *xds.SourceStream) error {
	text, at, err := r.read()
	if err != nil {
		return err
	}
	resources, err := Parse(text)
	if err != nil {
		return fmt.Errorf("%w in %s", err, r.name)
	}
	for {
		if err := resources.deliver(s, nil, true); err != nil {
			return err
		}
		s.Stale(fmt.Errorf("no server can be reached: the resources remembered %v ago are in use, from %s", time.Since(at).Round(time.Second), r.name))
		select {
		case <-ctx.Done():
			s.Fail(nil)
			return ctx.Err()
		case <-s.Changed():
		}
	}
}

// user is the user whose files are read: that of the process, except in tests.
var user = os.Geteuid

// read reads the file, unless it is a link, others may have written it, or it is too old.
func (r remembered) read() (text []byte, at time.Time, err error) {
	info, err := os.Lstat(r.name)
	if err != nil {
		return nil, at, err
	}
	at = info.ModTime()
	switch age := time.Since(at); {
	case !info.Mode().IsRegular() || info.Mode()&0o022 != 0 && os.PathSeparator == '/' || foreign(info):
		err = fmt.Errorf("%s is not a regular file of this user that nobody else may write", r.name)
	case age > rememberMax || age < -rememberEvery:
		err = fmt.Errorf("%s is %v old, more than %v", r.name, age.Round(time.Second), rememberMax)
	default:
		text, err = readSame(r.name, info)
	}
	return text, at, err
}

// memory writes the resources of a client.
type memory struct {
	client *xds.Client
	name   string
	logger *slog.Logger
	users  int
	stop   chan struct{}
	done   chan struct{}
	last   []byte
	err    string // logged last
}

var memories struct {
	sync.Mutex
	all map[*xds.Client]*memory
}

// Remember writes the resources of a client every minute, and when all its users have called release, to the
// file of its server of scheme Remembered. It does nothing without one.
func Remember(c *xds.Client, boot *bootstrap.Config, logger *slog.Logger) (release func()) {
	name, ok := strings.CutPrefix(boot.Servers[len(boot.Servers)-1].URI, Remembered)
	if !ok {
		return func() {}
	}
	if logger == nil {
		logger = slog.Default()
	}
	memories.Lock()
	defer memories.Unlock()
	m := memories.all[c]
	if m == nil {
		m = &memory{client: c, name: name, logger: logger, stop: make(chan struct{}), done: make(chan struct{})}
		if memories.all == nil {
			memories.all = map[*xds.Client]*memory{}
		}
		memories.all[c] = m
		go m.run()
	}
	m.users++
	return sync.OnceFunc(func() {
		memories.Lock()
		m.users--
		last := m.users == 0
		if last {
			delete(memories.all, c)
			close(m.stop)
		}
		memories.Unlock()
		if last {
			<-m.done
		}
	})
}

func (m *memory) run() {
	defer close(m.done)
	every := time.NewTicker(rememberEvery)
	defer every.Stop()
	for open := true; open; {
		select {
		case <-every.C:
		case <-m.stop:
			open = false
		}
		if err := m.write(); err != nil && err.Error() != m.err {
			m.err = err.Error()
			m.logger.Warn("xdslb: the resources in use cannot be remembered", "error", err)
		}
	}
}

// write writes the resources if a server can be reached and has sent all of them, so that the file has
// no older state than its time.
func (m *memory) write() error {
	connected := false
	for _, s := range m.client.Servers() {
		own := strings.HasPrefix(s.URI, Remembered)
		if own && s.InUse {
			return nil
		}
		connected = connected || !own && s.Connected
	}
	var list []json.RawMessage
	for s := range m.client.Resources() {
		old := strings.HasPrefix(s.Server, Remembered)
		if old && s.State == xds.Acked {
			return nil // the server has not answered yet
		}
		if old || s.Raw == nil {
			continue
		}
		text, err := protojson.MarshalOptions{Resolver: LinkedTypes{}}.Marshal(s.Raw)
		if err != nil {
			return fmt.Errorf("xdslb: %v %q: %w", s.Type, s.Name, err)
		}
		list = append(list, text)
	}
	if !connected || len(list) == 0 {
		return nil
	}
	var text bytes.Buffer
	if raw, err := json.Marshal(map[string]any{"resources": list}); err != nil {
		return err
	} else if err := json.Compact(&text, raw); err != nil { // protojson varies the white space
		return err
	}
	if now := time.Now(); bytes.Equal(text.Bytes(), m.last) && os.Chtimes(m.name, now, now) == nil {
		return nil
	}
	if err := replaceFile(m.name, text.Bytes()); err != nil {
		return err
	}
	m.last = text.Bytes()
	return nil
}

// replaceFile replaces a file atomically. The new file has the mode 0600. It removes what processes left that
// were killed while they did so.
func replaceFile(name string, text []byte) error {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(name), ".xdslb-*"))
	for _, file := range left {
		if info, err := os.Lstat(file); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(file)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".xdslb-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if now := time.Now(); err == nil {
		err = os.Chtimes(f.Name(), now, now)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

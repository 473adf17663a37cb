// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/xds/internal/files"
)

// A Source has the overlay in force of channels: the patches of a document, followed by the patches
// of a file, which is read again while the Source is watched. Channels with the same document and
// file share a Source. It must not be copied, and is safe for concurrent use.
type Source struct {
	document *Overlay // nil without one
	invalid  error    // why the document is not in force; nil if it is
	file     string   // empty without one
	reader   files.Reader
	current  atomic.Pointer[Overlay]     // nil until the file has been read for the first time
	logger   atomic.Pointer[slog.Logger] // nil is slog.Default()

	mu       sync.Mutex
	text     []byte // of the file, as read last
	err      error  // why text is not in force; nil if it is
	watchers map[*watcher]struct{}
	stop     chan struct{} // ends the polling, or nil
}

type watcher struct{ changed func() }

const (
	pollInterval = 5 * time.Second
	maxFile      = 4 << 20 // bytes
)

// sources are the Sources of the process. They are kept, since a channel that was idle has to find
// the overlay that was in force although the file may be invalid by then.
var sources sync.Map // of *Source, by sourceKey

type sourceKey struct {
	document, file string
	optional       bool
}

// withoutOverlay is logged if an overlay is invalid from the start.
const withoutOverlay = "xdslb: overlay is invalid: channels start without it"

// Optional is a suffix of the file's name that makes [Open] return a Source although the document or
// the file is invalid.
const Optional = "?"

// Open returns the Source of a document and a file; either may be empty. It fails if one of them is
// invalid, or the file cannot be read within two seconds, unless the file is known to have been valid
// before. If the name of the file ends with [Optional], the invalid part has no patches instead, which is
// logged; [Source.Err] returns the reason. Without both it returns nil, which has no patches. name is that of the document in messages.
// The first Logger that is not nil is used.
func Open(name string, document []byte, file string, logger *slog.Logger) (*Source, error) {
	file, optional := strings.CutSuffix(file, Optional)
	if len(document) == 0 && file == "" {
		return nil, nil
	}
	key := sourceKey{string(document), file, optional}
	known, ok := sources.Load(key)
	if !ok {
		s := &Source{file: file, watchers: map[*watcher]struct{}{}}
		if len(document) > 0 {
			var err error
			if s.document, err = Parse(name, document); err != nil && !optional {
				return nil, err
			}
			if err != nil {
				s.document, s.invalid = &Overlay{}, err
				cmp.Or(logger, slog.Default()).Error(withoutOverlay, "error", err)
			}
		}
		if file == "" {
			s.current.Store(s.document)
		}
		known, _ = sources.LoadOrStore(key, s)
	}
	s := known.(*Source)
	if s.current.Load() == nil {
		if err := s.reload(); err != nil {
			if !optional {
				return nil, err
			}
			if s.current.CompareAndSwap(nil, cmp.Or(s.document, &Overlay{})) {
				cmp.Or(logger, slog.Default()).Error(withoutOverlay, "error", err)
			}
		}
	}
	if logger != nil {
		s.logger.CompareAndSwap(nil, logger)
	}
	return s, nil
}

// Overlay returns the overlay in force. It is nil for a nil Source.
func (s *Source) Overlay() *Overlay {
	if s == nil {
		return nil
	}
	return s.current.Load()
}

// Refresh reads the file, unless watchers have it read anyway, so that a channel that was idle does not
// begin with an old overlay. A nil Source has no file.
func (s *Source) Refresh() {
	if s == nil || s.file == "" {
		return
	}
	s.mu.Lock()
	watched := s.stop != nil
	s.mu.Unlock()
	if !watched {
		_ = s.reload() // which has logged the error
	}
}

// Err returns why the document, or the present content of the file, is not in force, or nil.
func (s *Source) Err() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.invalid, s.err)
}

// Watch calls changed after each change of the overlay, on another goroutine and without a lock,
// until stop is called, or once more. While there are watchers, a goroutine reads the file every
// five seconds. changed may be called without a change.
func (s *Source) Watch(changed func()) (stop func()) {
	w := &watcher{changed}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[w] = struct{}{}
	if s.file != "" && s.stop == nil {
		s.stop = make(chan struct{})
		go s.poll(s.stop)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
		if len(s.watchers) == 0 && s.stop != nil {
			close(s.stop)
			s.stop = nil
		}
	}
}

// poll reads the file until stop is closed.
func (s *Source) poll(stop chan struct{}) {
	for {
		_ = s.reload() // which has logged the error
		select {
		case <-stop:
			return
		case <-time.After(pollInterval):
		}
	}
}

// reload reads the file. If it is invalid, or is not read soon, the previous overlay stays in force.
func (s *Source) reload() error {
	ctx, cancel := files.Soon(context.Background())
	defer cancel()
	err := s.reader.Read(ctx, s.read)
	if ctx.Err() == nil || err == nil {
		return err
	}
	_, err = s.set(nil, nil, s.failure(err))
	return err
}

// read reads the file for all callers of reload, and notifies the watchers.
func (s *Source) read() error {
	text, err := files.Read(s.file, maxFile)
	s.mu.Lock()
	same, before := err == nil && s.text != nil && bytes.Equal(text, s.text), s.err
	s.mu.Unlock()
	if same {
		return before
	}
	var o *Overlay
	if err != nil {
		text, err = nil, s.failure(err)
	} else {
		o, err = s.parse(text)
	}
	notify, err := s.set(text, o, err)
	for _, w := range notify {
		w.changed()
	}
	return err
}

// set sets the overlay in force to that of a text of the file, unless err is why it cannot be. It
// returns err, or the watchers. The first overlay is not logged: Open returns its error.
func (s *Source) set(text []byte, o *Overlay, err error) (notify []*watcher, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	logger, first, before := cmp.Or(s.logger.Load(), slog.Default()), s.current.Load() == nil, s.err
	s.text, s.err = text, err
	switch {
	case err != nil:
		if !first && (before == nil || before.Error() != err.Error()) {
			go logger.Warn("xdslb: overlay not reloaded, keeping the previous one", "error", err)
		}
		return nil, err
	case !first:
		go logger.Info("xdslb: overlay reloaded", "file", s.file, "patches", len(o.patches))
	}
	s.current.Store(o)
	return slices.Collect(maps.Keys(s.watchers)), nil
}

// parse returns the overlay with the patches of the document and of a text of the file.
func (s *Source) parse(text []byte) (*Overlay, error) {
	o, err := Parse("file "+s.file, text)
	if err != nil {
		return nil, err
	}
	return join(s.document, o), nil
}

func (s *Source) failure(err error) error {
	return fmt.Errorf("xdslb: overlay: file %s: cannot be read: %w", s.file, err)
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"cmp"
	"strings"

	"github.com/xdslb/xdslb/xds/resource"
)

// entryKey identifies an entry. Names are canonical (see resource.CanonicalName) and include the
// authority.
type entryKey struct {
	typ  resource.Type
	name string
}

func compareKeys(a, b entryKey) int {
	return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.name, b.name))
}

// authorityKey identifies an authority: the authority of an xdstp name, which may be empty, or
// no authority for names of the old style.
type authorityKey struct {
	xdstp bool
	name  string
}

// authorityOf returns the authority of a canonical name, between the slashes of
// xdstp://authority/type/id. It must agree with bootstrap.Config.ServersFor, which determines
// the servers.
func authorityOf(name string) authorityKey {
	rest, ok := strings.CutPrefix(name, "xdstp:")
	if !ok {
		return authorityKey{}
	}
	key := authorityKey{xdstp: true}
	path, _, _ := strings.Cut(rest, "?")
	if r, ok := strings.CutPrefix(path, "//"); ok {
		key.name, path, _ = strings.Cut(r, "/")
	} else {
		path = strings.TrimPrefix(path, "/")
	}
	if typ, id, _ := strings.Cut(path, "/"); typ == "" || id == "" {
		return authorityKey{}
	}
	return key
}

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"log/slog"

	"github.com/xdslb/xdslb/xds"
)

// scheme is the scheme of a server_uri that selects this package.
const scheme = "kubernetes"

func init() {
	xds.RegisterSource(scheme, func(uri string) (xds.Source, error) {
		o, err := parseURI(uri)
		if err != nil {
			return nil, err
		}
		return opened(o), nil
	})
}

// opened is an xds.Source.
type opened options

// Run lists and watches until ctx ends.
func (o opened) Run(ctx context.Context, out *xds.SourceStream) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	c, err := newClients(cfg)
	if err != nil {
		return err
	}
	return newSource(c, options(o), func(name string, err error) {
		slog.Warn("xdslb: Kubernetes has no such resource", "name", name, "error", err)
	}).run(ctx, out)
}

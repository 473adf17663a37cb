// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstls

import (
	"encoding/json"

	registry "google.golang.org/grpc/xds/bootstrap"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// BootstrapParser returns a parser that also accepts the credentials of gRPC's registry, where users
// add their own, and certificate plugins.
func BootstrapParser() bootstrap.Parser {
	return bootstrap.Parser{
		ChannelCreds: func(name string) bootstrap.ChannelBuilder { return registry.GetChannelCredentials(name) },
		CallCreds:    func(name string) bootstrap.CallBuilder { return registry.GetCallCredentials(name) },
		CertPlugin: func(name string, config json.RawMessage) error {
			_, err := ParsePlugin(name, config)
			return err
		},
	}
}

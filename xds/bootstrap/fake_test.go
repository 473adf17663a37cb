// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// A fakeChannel builds plain-text credentials under another name, or fails, and
// counts.
type fakeChannel struct {
	err            error
	none           bool // return no credentials
	secure         bool // claim to be secure
	built, stopped int
	config         json.RawMessage // of the last Build
}

func (f *fakeChannel) Build(config json.RawMessage) (credentials.Bundle, func(), error) {
	f.config = config
	if f.err != nil {
		return nil, nil, f.err
	}
	if f.none {
		return nil, nil, nil
	}
	f.built++
	return fakeBundle{insecure.NewBundle(), f.secure}, func() { f.stopped++ }, nil
}

type fakeBundle struct {
	credentials.Bundle
	secure bool
}

func (b fakeBundle) TransportCredentials() credentials.TransportCredentials {
	if b.secure {
		return credentials.NewTLS(nil)
	}
	return b.Bundle.TransportCredentials()
}

// DialOptions sets a user agent, as an example of a bundle's options.
func (fakeBundle) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUserAgent("bundle")}
}

// A fakeCall builds call credentials, or fails, and counts.
type fakeCall struct {
	err            error
	secure         bool // require transport security
	built, stopped int
}

func (f *fakeCall) Build(json.RawMessage) (credentials.PerRPCCredentials, func(), error) {
	if f.err != nil {
		return nil, nil, f.err
	}
	f.built++
	return f, func() { f.stopped++ }, nil
}

func (f *fakeCall) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"x-fake": "yes"}, nil
}

func (f *fakeCall) RequireTransportSecurity() bool { return f.secure }

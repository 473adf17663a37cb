// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate_test

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xdslb/xdslb/integrate"
)

// tenant is a filter that sends the tenant's name along. Control planes
// configure it by a TypedStruct: {"type_url": "acme.Tenant", "value": {"name": "blue"}}.
var tenant = integrate.HTTPFilter{
	Config: "acme.Tenant", ParseConfig: parseTenant,
	Override: "acme.Tenant", ParseOverride: parseTenant,
	Intercept: func(config, override any) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
		name := config
		if override != nil {
			name = override
		}
		header := []string{"x-tenant", fmt.Sprint(name)}
		return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return next(metadata.AppendToOutgoingContext(ctx, header...), method, req, reply, cc, opts...)
			}, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				return next(metadata.AppendToOutgoingContext(ctx, header...), desc, cc, method, opts...)
			}
	},
}

func parseTenant(m proto.Message) (any, error) {
	s, _ := m.(*structpb.Struct)
	if name := s.GetFields()["name"].GetStringValue(); name != "" {
		return name, nil
	}
	return nil, errors.New("name must not be empty")
}

func init() { integrate.RegisterHTTPFilter(tenant) }

func ExampleRegisterHTTPFilter() {
	// When a listener has the filter, and an RPC is made:
	value, _ := structpb.NewStruct(map[string]any{"name": "blue"})
	config, err := tenant.ParseConfig(value)
	if err != nil {
		fmt.Println(err)
	}
	unary, _ := tenant.Intercept(config, nil)
	_ = unary(context.Background(), "/s/m", nil, nil, nil,
		func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			md, _ := metadata.FromOutgoingContext(ctx)
			fmt.Println(md.Get("x-tenant"))
			return nil
		})
	// Output: [blue]
}

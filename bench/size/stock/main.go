// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command stock is round_robin with the xDS of grpc-go.
package main

import (
	"context"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/grpc/xds"
)

func main() {
	cc, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	if _, err := healthpb.NewHealthClient(cc).Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil {
		panic(err)
	}
}

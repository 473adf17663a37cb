// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
)

var versionCommand = command{
	name: "version", args: "", summary: "print the versions of xdslb, gRPC and Go",
	about:   "Prints the version or commit of xdslb, and the versions of gRPC and Go.",
	example: "xdslb version",
	flags: func(e *env, _ *flag.FlagSet) func([]string) (bool, error) {
		return func(args []string) (bool, error) {
			if err := want(args); err != nil {
				return false, err
			}
			v := struct {
				Version string `json:"version"`
				Commit  string `json:"commit,omitempty"`
				GRPC    string `json:"grpc"`
				Go      string `json:"go"`
			}{"unknown", "", grpc.Version, runtime.Version()}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = info.Main.Version
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			if e.json {
				return false, e.printJSON(v)
			}
			fmt.Fprintf(e.stdout, "xdslb %s\ngrpc %s\n%s\n", strings.TrimSpace(v.Version+" "+v.Commit), v.GRPC, v.Go)
			return false, nil
		}
	},
}

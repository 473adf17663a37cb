// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package debug provides an HTTP handler that shows the channels of a process, as a page and as
// JSON:
//
//	mux.Handle("/debug/xdslb/", debug.Handler())
//
// The handler finds all channels of the process that use xdslb, without registration. Idle
// channels are not listed. A channel that uses google.golang.org/grpc/xds because of an
// environment variable is listed with the variable, the pattern and the way back. The handler
// only reads: it accepts GET and HEAD, opens no connections, and changes no configuration. From
// a request until a minute after it, RPCs of the channel are counted by endpoint
// (integrate.Channel.Inspect). A request from another web site starts no counting.
//
// # Access
//
// The page shows addresses, clusters and certificate authorities. Serve it where metrics and
// pprof are served: on an address that only operators can reach. Importing the package
// registers nothing with http.DefaultServeMux.
//
// Requests are served by IP address, and by the names localhost (as with kubectl port-forward), of the
// machine, and in http.Server.Addr. Other names need Options.Hosts:
//
//	debug.Options{Hosts: []string{"orders.internal"}}.Handler()
//
// # URLs
//
// The last element of the path, or the parameter format, selects the format:
//
//	/debug/xdslb/                    the page: all channels, those with errors first
//	/debug/xdslb/?show=errors        channels with errors; text=orders selects by target
//	/debug/xdslb/?channel=2          the page of one channel
//	/debug/xdslb/json                a Document; the same as ?format=json
//	/debug/xdslb/json?channel=2      a Document with one channel
//	/debug/xdslb/json?detail=0       without routes and endpoints; does not count RPCs
//	/debug/xdslb/explain?channel=2&method=/shop.Cart/Add&headers=env:+test
//	                                 a report.Explanation as JSON
//
// The page works without scripts. The filter of the channel's page selects clusters by name and endpoints
// by address or hostname.
// The JSON is stable: fields may be added, but are not removed and keep their meaning. An error
// is a JSON object with the field "error".
//
// # Size
//
// The page lists at most 500 channels, those with problems first. That of a channel shows at most 50
// clusters, with 200 endpoints each or 400 in total, those with problems first. It stays below 150 kB
// for 1,000 channels or 10,000 endpoints with ordinary names, and at about 1 MB whatever the
// configuration. Invisible characters, and characters that change the direction of text, are escaped.
// The JSON is complete.
//
// # Files
//
//	debug.go    Handler: formats, parameters and headers; hosts and sites whose requests are served
//	page.go     the page: the list of channels, or a channel and the explanation of an RPC
//	page.html   the template, with style.css
package debug

// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package debug shows what the channels of a process do, as a page for people and as JSON
// for programs:
//
//	mux.Handle("/debug/xdslb/", debug.Handler())
//
// A handler shows all channels of the process that have a resolver of this module, so there
// is nothing to register; one that is idle has nothing to show. A channel that the environment
// hands to google.golang.org/grpc/xds shows with the variable, the pattern and the way back. It reads only: it answers GET
// and HEAD, connects nothing, and changes no configuration. While somebody looks, and for a
// minute after that, the RPCs of the channel are counted by endpoint (integrate.Channel.Inspect).
//
// # Where to serve it
//
// The page names addresses, clusters and certificates' authorities. Serve it where metrics and
// pprof are: on an address that only operators reach. Importing the package registers nothing
// with http.DefaultServeMux.
//
// # What there is
//
// The last element of the path, or the parameter format, says what to show:
//
//	/debug/xdslb/                    the page
//	/debug/xdslb/?channel=2          of the channel of a number
//	/debug/xdslb/json                a Document; the same as ?format=json
//	/debug/xdslb/json?channel=2      of one channel
//	/debug/xdslb/json?detail=0       without routes and endpoints; counts no RPCs
//	/debug/xdslb/explain?channel=2&method=/shop.Cart/Add&headers=env:+test
//	                                 an report.Explanation as JSON
//
// The page has further parameters for what of long tables it shows; these may change. The
// JSON is stable: fields come, and none goes or changes its meaning. An error is a JSON
// object with the field "error".
//
// # Size
//
// The page shows long tables in pieces and cuts long names, so it stays below 1 MB whatever
// the configuration. Names show with escapes in place of characters that do not show, or turn
// the direction of text. The JSON has all of everything, uncut.
//
// # Files
//
//	debug.go      Handler: what is asked for, and the headers of answers
//	view.go       the page as data: what is shown, and in which pieces
//	endpoints.go  the table of endpoints
//	format.go     shares, durations and names as text
//	page.html     the page; style.css is in it
package debug

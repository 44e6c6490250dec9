/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hawser-io/hawser/internal/install"
)

// Users of the programs, as the API server names them.
var (
	ManagerUser  = user(namePrefix + "hawser-manager")
	AgentUser    = user(namePrefix + "hawser-agent")
	AttacherUser = user("csi-attacher")
)

// UpstreamUser is the user of upstream's attach/detach controller.
const UpstreamUser = "system:serviceaccount:kube-system:attachdetach-controller"

// namePrefix is what an overlay puts before the names of the installation. The variable POD_NAMESPACE, which all
// programs read, sets its namespace.
var namePrefix = os.Getenv("HAWSER_NAME_PREFIX")

func user(account string) string {
	return "system:serviceaccount:" + install.Namespace() + ":" + account
}

// NodeUser is the user with which the agent of a node reads Secrets.
func NodeUser(node string) string { return user("hawser-agent-node-" + node) }

// Name that an object of config/ has in this installation.
func Name(base string) string { return namePrefix + base }

// Account is the namespace and the name of a service account of config/ in this installation, as kubectl takes them.
func Account(base string) string { return install.Namespace() + ":" + Name(base) }

// Request is one line of the API server's audit log.
type Request struct {
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	// Received is when the API server received the request, Answered when it sent the answer.
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
	User     struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ObjectRef struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// IsWrite reports whether the request changes something.
func (r Request) IsWrite() bool {
	return !strings.Contains(r.RequestURI, "dryRun=") &&
		slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// What names the request's resource with its subresource.
func (r Request) What() string {
	if r.ObjectRef.Subresource != "" {
		return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
	}
	return r.ObjectRef.Resource
}

// Node that the user's token is bound to, or "" for most users.
func (r Request) Node() string {
	return strings.Join(r.User.Extra["authentication.kubernetes.io/node-name"], ",")
}

// AuditMark is a position in the audit log.
type AuditMark int64

// Mark returns the present end of the audit log.
func (s *System) Mark() (AuditMark, error) {
	info, err := os.Stat(s.AuditLog())
	if err != nil {
		return 0, fmt.Errorf("reading the size of the audit log: %w", err)
	}
	return AuditMark(info.Size()), nil
}

// Requests reads the requests to the API server since mark: each request once, a watch at its beginning.
func (s *System) Requests(mark AuditMark) ([]Request, error) {
	return s.requests(mark, "")
}

// RequestsOn reads every request on one resource.
func (s *System) RequestsOn(resource string) ([]Request, error) {
	all, err := s.requests(0, `"resource":"`+resource+`"`)
	return slices.DeleteFunc(all, func(r Request) bool { return r.ObjectRef.Resource != resource }), err
}

// requests reads the lines that contain something. An audit log is long, and a search is faster than to parse
// all lines.
func (s *System) requests(mark AuditMark, something string) ([]Request, error) {
	file, err := os.Open(s.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	if _, err := file.Seek(int64(mark), 0); err != nil {
		return nil, fmt.Errorf("seeking in the audit log: %w", err)
	}
	var requests []Request
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		if !bytes.Contains(scanner.Bytes(), []byte(something)) {
			continue
		}
		var r Request
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			break // the last line is still being written
		}
		if (r.Verb == "watch") == (r.Stage == "ResponseStarted") {
			requests = append(requests, r)
		}
	}
	return requests, scanner.Err()
}

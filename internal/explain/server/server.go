/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package server reads from an API server what reports are made of.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/version"
)

// NewScheme knows the kinds that reports read.
func NewScheme() *k8sruntime.Scheme {
	scheme := k8sruntime.NewScheme()
	// Both only fail if two types have one name, which a test would show.
	_ = clientgoscheme.AddToScheme(scheme)
	_ = volumesv1alpha1.AddToScheme(scheme)
	return scheme
}

// newMapper knows the kinds without discovery, which would cost two requests for each group.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Pod", "PersistentVolumeClaim", "Event", "ConfigMap", "Secret"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Node", "PersistentVolume", "Namespace"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"StorageClass", "VolumeAttachment", "CSINode", "CSIDriver"} {
		mapper.Add(storagev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
		mapper.Add(admissionv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
		mapper.Add(admissionv1.SchemeGroupVersion.WithKind(kind+"Binding"), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"DaemonSet", "Deployment", "StatefulSet"} {
		mapper.Add(appsv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntent"), meta.RESTScopeNamespace)
	mapper.Add(volumesv1alpha1.GroupVersion.WithKind("VolumeAttachmentIntentSet"), meta.RESTScopeNamespace)
	mapper.Add(volumesv1alpha1.GroupVersion.WithKind("NodeVolumeState"), meta.RESTScopeRoot)
	mapper.Add(volumesv1alpha1.GroupVersion.WithKind("VolumeManager"), meta.RESTScopeRoot)
	return mapper
}

// Reader reads from an API server.
type Reader struct {
	client.WithWatch
	Clientset kubernetes.Interface
	Clock     *Clock
}

var _ facts.Reader = (*Reader)(nil)

// New returns a Reader. The program and its version are in audit logs.
func New(config *rest.Config, program string) (*Reader, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = fmt.Sprintf("%s/%s (%s/%s)", program, version.Version, runtime.GOOS, runtime.GOARCH)
	config.QPS = -1 // a report sends few requests
	config.WarningHandler = rest.NoWarnings{}
	clock := &Clock{Local: time.Now}
	config.Wrap(clock.listenTo)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{HTTPClient: httpClient, Scheme: NewScheme(), Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	clientset, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the cluster: %w", err)
	}
	return &Reader{c, clientset, clock}, nil
}

// Installed asks for the group of Hawser's kinds, which every user may. Where discovery is closed to the user, the
// reads themselves show what is there.
func (r *Reader) Installed(ctx context.Context) (bool, error) {
	err := r.Clientset.StorageV1().RESTClient().Get().AbsPath("/apis", volumesv1alpha1.GroupVersion.Group).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err == nil, apierrors.IsForbidden(err):
		return true, nil
	default:
		return false, err
	}
}

// Attachments reads all VolumeAttachments as the table that kubectl prints: ten thousand of them are a megabyte, and
// the API server cannot select those of a volume.
func (r *Reader) Attachments(ctx context.Context) ([]facts.Attachment, error) {
	raw, err := r.Clientset.StorageV1().RESTClient().Get().Resource("volumeattachments").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Param("includeObject", "None").
		Param("resourceVersion", "0").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return nil, fmt.Errorf("reading the table of VolumeAttachments: %w", err)
	}
	name, driver, pv, node, attached := column(&table, "Name"), column(&table, "Attacher"), column(&table, "PV"),
		column(&table, "Node"), column(&table, "Attached")
	if min(name, driver, pv, node, attached) < 0 {
		return nil, errors.New("the API server's table of VolumeAttachments has no column Name, Attacher, PV, Node or " +
			"Attached")
	}
	var all []facts.Attachment
	for _, row := range table.Rows {
		all = append(all, facts.Attachment{Name: fmt.Sprint(row.Cells[name]), Driver: fmt.Sprint(row.Cells[driver]),
			Volume: fmt.Sprint(row.Cells[pv]), Node: fmt.Sprint(row.Cells[node]), Attached: row.Cells[attached] == true})
	}
	return all, nil
}

func column(table *metav1.Table, name string) int {
	return slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == name })
}

// Clock is the clock of the API server, to a second or so, as its answers show it. That of the user's machine may
// be off, and would make living agents dead.
type Clock struct {
	Local func() time.Time
	// ahead of the local clock, in nanoseconds; zero before the first answer.
	ahead atomic.Int64
}

// Now is the local time before the first answer.
func (c *Clock) Now() time.Time { return c.Local().Add(time.Duration(c.ahead.Load())) }

// listenTo reads the date of each answer.
func (c *Clock) listenTo(next http.RoundTripper) http.RoundTripper {
	return &dated{RoundTripper: next, clock: c}
}

type dated struct {
	http.RoundTripper
	clock *Clock
}

var _ utilnet.RoundTripperWrapper = &dated{}

func (d *dated) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

func (d *dated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		d.clock.ahead.Store(int64(date.Sub(d.clock.Local())))
	}
	return response, nil
}

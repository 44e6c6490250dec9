/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/alerts/scale"
	"github.com/hawser-io/hawser/test/alerts/situations"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/endpoints"
	"github.com/hawser-io/hawser/test/system"
)

const (
	namespace = "default"
	class     = "loop"
	// faster is by how much the durations of the alerts are divided.
	faster = 60
	// scrapes is how often Prometheus scrapes and evaluates: five times in the shortest window.
	scrapes = "1s"
	// waitTimeout is the timeout of every wait.
	waitTimeout = 6 * time.Minute
	// dirVariable enables the suite and names the directory of its cluster.
	dirVariable = "HAWSER_TEST_ALERTS"
)

// Nodes. On node a most faults are made. The agents of the others are dead, or cut off from the API server.
const nodeA, nodeB, nodeC = "node-a", "node-b", "node-c"

// suite is what all steps share.
type suite struct {
	*system.System
	receiver  *Receiver
	rules     []scale.Rule
	addresses map[string]string
	token     string
	// situations are those that users read of, and shown has the names of those that were seen.
	situations []situations.Situation
	shown      sync.Map
}

// shared is the suite that TestMain starts.
var shared *suite

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(dirVariable) == "" {
		fmt.Println("not asked for: make test-alerts runs these tests")
		return 0
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	var err error
	if shared, err = start(ctx); err != nil {
		fmt.Println("FAIL: starting the system:", err)
		if shared != nil && shared.System != nil {
			err = shared.Down(context.Background())
			fmt.Println("stopped:", err)
		}
		return 1
	}
	code := m.Run()
	if err := shared.Down(context.Background()); err != nil {
		fmt.Println("FAIL: stopping the system:", err)
		return 1
	}
	for _, left := range leftovers() {
		fmt.Println("FAIL: left behind:", left)
		code = 1
	}
	return code
}

// leftovers lists what must be gone.
func leftovers() []string {
	devices, err := system.LoopDevicesOn(shared.Dir)
	mounts, mountsErr := system.MountsBelow(shared.Dir)
	if err := errors.Join(err, mountsErr); err != nil {
		return []string{err.Error()}
	}
	if _, err := os.Stat(shared.Dir); err == nil {
		mounts = append(mounts, shared.Dir)
	}
	return append(devices, mounts...)
}

// Programs that are scraped, and Prometheus itself.
const (
	manager          = "manager"
	operator         = "operator"
	kubeStateMetrics = "kube-state-metrics"
	telemetry        = "kube-state-metrics-telemetry"
	alertmanager     = "alertmanager"
	prometheus       = "prometheus"
)

func start(ctx context.Context) (*suite, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("this needs root")
	}
	bin, err := system.Build(ctx)
	if err != nil {
		return nil, err
	}
	s := &suite{receiver: NewReceiver(), addresses: map[string]string{}}
	if s.situations, err = situations.Read(); err != nil {
		return nil, err
	}
	for _, name := range []string{manager, operator, nodeA, nodeB, nodeC, observer, kubeStateMetrics, telemetry,
		prometheus} {
		if s.addresses[name], err = endpoints.Free(ctx); err != nil {
			return nil, err
		}
	}
	options := system.Options{
		Dir: os.Getenv(dirVariable), Bin: bin, Nodes: []string{nodeA, nodeB, nodeC}, Out: os.Stdout, AttachDetach: true,
		ManagerArgs: []string{"--metrics-bind-address=" + s.addresses[manager]},
		AgentArgs:   []string{"--driver-timeout=5s", "--stats-period=2s"},
		ArgsOfAgent: map[string][]string{}, Machines: true,
	}
	for _, node := range options.Nodes {
		options.ArgsOfAgent[node] = []string{"--metrics-bind-address=" + s.addresses[node]}
	}
	if err := system.Open(options).Down(ctx); err != nil {
		return nil, fmt.Errorf("taking down an earlier run: %w", err)
	}
	if s.System, err = system.Up(ctx, options); err != nil {
		return nil, err
	}
	for _, object := range []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName},
			Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: system.DriverName,
			AllowVolumeExpansion: ptr.To(true)},
	} {
		if err := s.Client.Create(ctx, object); err != nil {
			return s, fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	return s, s.monitor(ctx)
}

// monitor starts kube-state-metrics, the observer, the receiver and Prometheus.
func (s *suite) monitor(ctx context.Context) error {
	if err := s.readToken(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.startExporter(ctx), s.startObserver(ctx)); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for alerts: %w", err)
	}
	s.addresses[alertmanager] = l.Addr().String()
	server := &http.Server{Handler: s.receiver, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // it ends with the process
	if err := s.writeRules(); err != nil {
		return err
	}
	if err := s.writeConfig(); err != nil {
		return err
	}
	program, err := exec.LookPath(prometheus)
	if err != nil {
		return fmt.Errorf("finding Prometheus, which hack/setup-packages.sh --monitoring installs: %w", err)
	}
	return s.Run(ctx, prometheus, program, "--config.file="+s.file("prometheus.yaml"),
		"--storage.tsdb.path="+s.file("prometheus"), "--web.listen-address="+s.addresses[prometheus],
		"--rules.alert.resend-delay=2s", "--log.level=warn")
}

func (s *suite) file(name string) string { return filepath.Join(s.Dir, name) }

// readToken waits for the token that the Secret of the account of config/monitoring gets.
func (s *suite) readToken(ctx context.Context) error {
	key := client.ObjectKey{Namespace: install.Namespace(), Name: system.Name("hawser-metrics-scraper")}
	secret, err := system.Await(ctx, s.System, &corev1.SecretList{}, key, func(secret *corev1.Secret) bool {
		return secret != nil && len(secret.Data[corev1.ServiceAccountTokenKey]) > 0
	})
	if err != nil {
		return err
	}
	s.token = string(secret.Data[corev1.ServiceAccountTokenKey])
	return os.WriteFile(s.file("scraper.token"), []byte(s.token), 0o600)
}

// startExporter starts kube-state-metrics.
func (s *suite) startExporter(ctx context.Context) error {
	host, port, _ := net.SplitHostPort(s.addresses[kubeStateMetrics])
	_, telemetryPort, _ := net.SplitHostPort(s.addresses[telemetry])
	return s.Run(ctx, kubeStateMetrics, filepath.Join(apiserver.Root(), ".cache", "tools", kubeStateMetrics),
		"--kubeconfig="+s.Kubeconfig(), "--custom-resource-state-only", "--custom-resource-state-config-file="+
			filepath.Join(apiserver.Root(), "config", "kube-state-metrics", "custom-resource-state.yaml"),
		"--host="+host, "--port="+port, "--telemetry-host="+host, "--telemetry-port="+telemetryPort)
}

// shipped are the files of rules.
var shipped = []string{"hawser.yaml", "hawser-observer.yaml"}

// writeRules writes the alerts that are shipped, with shorter durations.
func (s *suite) writeRules() error {
	for _, name := range shipped {
		text, err := os.ReadFile(filepath.Join(apiserver.Root(), "config", "prometheus", name))
		if err != nil {
			return fmt.Errorf("reading the alerts: %w", err)
		}
		rules, err := scale.Parse(text)
		if err != nil {
			return err
		}
		if err := rules.Divide(faster); err != nil {
			return err
		}
		s.rules = append(s.rules, rules.All()...)
		if err := writeYAML(s.file(name), rules); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) writeConfig() error {
	type object = map[string]any
	secure := func(job, target string, labels object) object {
		return object{"job_name": job, "scheme": "https", "tls_config": object{"insecure_skip_verify": true},
			"authorization":  object{"credentials_file": s.file("scraper.token")},
			"static_configs": []object{{"targets": []string{target}, "labels": labels}}}
	}
	agents := install.Namespace() + "/" + system.Name("hawser-agent")
	return writeYAML(s.file("prometheus.yaml"), object{
		"global":     object{"scrape_interval": scrapes, "scrape_timeout": scrapes, "evaluation_interval": scrapes},
		"rule_files": shipped,
		"alerting": object{"alertmanagers": []object{{"static_configs": []object{
			{"targets": []string{s.addresses[alertmanager]}}}}}},
		"scrape_configs": []object{
			secure(system.Name("hawser-manager-metrics"), s.addresses[manager], nil),
			secure(install.Namespace()+"/"+system.Name("hawser-operator"), s.addresses[operator], nil),
			secure(observer, s.addresses[observer], nil),
			secure(agents+"-a", s.addresses[nodeA], object{"node": nodeA}),
			secure(agents+"-b", s.addresses[nodeB], object{"node": nodeB}),
			secure(agents+"-c", s.addresses[nodeC], object{"node": nodeC}),
			{"job_name": kubeStateMetrics, "honor_labels": true,
				"static_configs": []object{{"targets": []string{s.addresses[kubeStateMetrics]}}}},
		},
	})
}

func writeYAML(name string, object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("rendering %s: %w", name, err)
	}
	return os.WriteFile(name, text, 0o600)
}

// say prints what happens.
func say(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().Format(time.TimeOnly), strings.TrimSpace(fmt.Sprintf(format, args...)))
}

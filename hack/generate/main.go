// Command generate writes what is generated in this repository: the
// CustomResourceDefinitions from the published Go types, the deep copies of our own API
// types, the Tekton manifests and READMEs of the tasks, the common instance types and
// preferences, and the docs' lists of those, of fields and of metrics. With --check it writes
// nothing and fails when a file differs.
//
//	go run ./hack/generate [--check]
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/slipway-vm/slipway/hack/generate/crd"
	"github.com/slipway-vm/slipway/hack/generate/deepcopy"
	"github.com/slipway-vm/slipway/hack/generate/metrics"
	"github.com/slipway-vm/slipway/hack/generate/output"
	"github.com/slipway-vm/slipway/hack/generate/sizes"
	"github.com/slipway-vm/slipway/hack/generate/task"
	"github.com/slipway-vm/slipway/internal/supported"
	"github.com/slipway-vm/slipway/tasks"
)

// crdFolder holds nothing but generated definitions; the operator embeds it.
const crdFolder = "controllers/hyperconverged/components/crds"

func main() {
	check := flag.Bool("check", false, "write nothing; fail when a generated file is not up to date")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	files := output.New(check)
	if err := deepcopy.Generate(files, "./internal/api/..."); err != nil {
		return fmt.Errorf("generating deep copies: %w", err)
	}
	definitions, err := crd.Generate(crd.Kinds)
	if err != nil {
		return fmt.Errorf("generating custom resource definitions: %w", err)
	}
	if err := files.Folder(crdFolder, ".yaml", definitions); err != nil {
		return fmt.Errorf("writing custom resource definitions: %w", err)
	}
	if err := task.Generate(files, "tasks", tasks.All()); err != nil {
		return err
	}
	if err := sizes.Generate(files, "catalog", "docs/common-instancetypes.md"); err != nil {
		return fmt.Errorf("generating common instance types and preferences: %w", err)
	}
	if err := files.File("docs/supported-fields.md", []byte(supportedFields())); err != nil {
		return err
	}
	if err := files.File("docs/metrics.md", []byte(metrics.Page())); err != nil {
		return err
	}
	return files.Result()
}

// supportedFields is the page of the fields that Slipway acts on and of those that it refuses.
func supportedFields() string {
	var b strings.Builder
	b.WriteString("<!-- Generated from internal/supported by `make generate`. DO NOT EDIT. -->\n# Supported fields\n\n")
	b.WriteString("Nothing is silently ignored: a field that is not acted on yet is refused at admission, with its path.\n")
	for _, kind := range supported.Kinds() {
		b.WriteString("\n" + supported.Markdown(kind))
	}
	b.WriteString("\n" + supported.AnnotationsMarkdown())
	return b.String()
}

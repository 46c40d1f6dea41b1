package vnc

import (
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

func newScreenshotCommand(cluster subresource.Cluster) *cobra.Command {
	var file string
	var moveCursor bool
	command := &cobra.Command{
		Use:   "screenshot VMI",
		Short: "Takes a picture of the screen of a VMI",
		Example: `  # Save the screen of the VMI "web":
  virtctl vnc screenshot web --file web.png

  # Show it:
  virtctl vnc screenshot web --file - | display`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := subresource.Of(cluster)
			if err != nil {
				return err
			}
			query := url.Values{"moveCursor": {strconv.FormatBool(moveCursor)}}
			picture, err := api.Get(cmd.Context(), subresource.Instance(args[0]), "vnc/screenshot", query)
			if err != nil {
				return subresource.Failed("Can't access VMI "+args[0]+": ", err)
			}
			if file == "-" {
				_, err = cmd.OutOrStdout().Write(picture)
			} else {
				err = os.WriteFile(file, picture, 0o644)
			}
			if err != nil {
				return fmt.Errorf("writing the picture: %w", err)
			}
			return nil
		},
	}
	command.Flags().StringVarP(&file, "file", "f", "", "File for the picture, a PNG; - is standard output. Required.")
	command.Flags().BoolVarP(&moveCursor, "move-cursor", "m", false, "Move the cursor first, which wakes a screen that is saved.")
	_ = command.MarkFlagRequired("file")
	return command
}

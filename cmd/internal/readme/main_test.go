package readme

import (
	"os"
	"testing"

	"github.com/musterhq/muster/cmd/internal/binaries"
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

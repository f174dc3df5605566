"""The composition root and the command line: settings become objects here, and nothing else imports this package."""

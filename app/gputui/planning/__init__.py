"""Model × devices → strategies with their memory and traffic: pure, nothing is started or measured."""
